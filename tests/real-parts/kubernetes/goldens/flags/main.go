// Prints what the pinned kubelet itself knows, as text that our tables are compared with:
//
//	go run ./goldens/flags flags   every command line flag, its kind, default and deprecation
//	go run ./goldens/flags gates   every feature gate, its stage, default, lock and dependencies
//
// The facts come from the linked packages, never from a list in this file. Help texts are not
// printed: ours are our own.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	_ "k8s.io/component-base/logs/json/register" // the JSON log flags exist only with it
	_ "k8s.io/kubernetes/cmd/kubelet/app"        // registers every gate the binary has
	"k8s.io/kubernetes/cmd/kubelet/app/options"
)

func main() {
	what := strings.Join(os.Args[1:], " ")
	if what != "flags" && what != "gates" {
		fmt.Fprintf(os.Stderr, "expected one argument, flags or gates; got %q\n", what)
		os.Exit(2)
	}
	fmt.Printf("# %s of k8s.io/kubernetes %s\n", what, pinnedVersion())
	if what == "flags" {
		printFlags()
	} else {
		printGates()
	}
}

// pinnedVersion is the version in go.mod that this program was linked with.
func pinnedVersion() string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, module := range info.Deps {
			if module.Path == "k8s.io/kubernetes" {
				return module.Version
			}
		}
	}
	return "unknown"
}

func printFlags() {
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	configuration, err := options.NewKubeletConfiguration()
	if err != nil {
		fmt.Fprintf(os.Stderr, "the kubelet's default configuration: %v\n", err)
		os.Exit(1)
	}
	options.NewKubeletFlags().AddFlags(set)
	options.AddKubeletConfigFlags(set, configuration)
	options.AddGlobalFlags(set)
	set.BoolP("help", "h", false, "")

	fmt.Println("# name|shorthand|kind|go type|value when bare|deprecated|default")
	set.VisitAll(func(flag *pflag.Flag) {
		goType := strings.TrimPrefix(fmt.Sprintf("%T", flag.Value), "*")
		if pairs, ok := flag.Value.(*cliflag.MapStringString); ok && pairs.NoSplit {
			goType += " unsplit"
		}
		fmt.Printf("%s|%s|%s|%s|%s|%t|%s\n", flag.Name, flag.Shorthand, flag.Value.Type(), goType,
			flag.NoOptDefVal, flag.Deprecated != "", flag.DefValue)
	})
}

func printGates() {
	known := utilfeature.DefaultMutableFeatureGate.GetAll()
	needs := utilfeature.DefaultMutableFeatureGate.Dependencies()
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, string(name))
	}
	slices.Sort(names)

	fmt.Println("# name|stage|default|locked|needs")
	for _, name := range names {
		spec := known[featuregate.Feature(name)]
		stage := string(spec.PreRelease)
		if stage == "" {
			stage = "GA"
		}
		needed := make([]string, 0)
		for _, other := range needs[featuregate.Feature(name)] {
			needed = append(needed, string(other))
		}
		slices.Sort(needed)
		fmt.Printf("%s|%s|%t|%t|%s\n", name, stage, spec.Default, spec.LockToDefault, strings.Join(needed, ","))
	}
}
