// Command units prints what the pinned Kubernetes makes of small texts: quantities, durations, CPU
// lists, addresses, names and eviction thresholds. Its output is checked in beside the Rust types
// that must agree with it, as golden.txt files under crates/model/pod-model/src and
// crates/model/ports/src.
//
//	go run ./goldens/units SECTION > FILE
//
// The same section always gives the same bytes: inputs are fixed edge cases and texts drawn from a
// generator with a fixed seed. The first line names the version of Kubernetes. Every other line is
// one input and what became of it, separated by tabs; "E" alone means refused.
package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
)

// printers has one entry per section; each prints the lines of one file.
var printers = map[string]func(*bufio.Writer){
	"cpu-set":        printCPUSets,
	"duration":       printDurations,
	"ip":             printAddresses,
	"metric-numbers": printMetricNumbers,
	"names":          printNames,
	"quantity":       printQuantities,
	"quantity-pairs": printQuantityPairs,
	"sizes":          printSizes,
}

func main() {
	if len(os.Args) != 2 || printers[os.Args[1]] == nil {
		known := []string{}
		for name := range printers {
			known = append(known, name)
		}
		slices.Sort(known)
		fmt.Fprintf(os.Stderr, "usage: units SECTION, one of: %s\n", strings.Join(known, ", "))
		os.Exit(2)
	}
	out := bufio.NewWriter(os.Stdout)
	fmt.Fprintf(out, "# Kubernetes %s: go run ./goldens/units %s\n", pinnedVersion(), os.Args[1])
	printers[os.Args[1]](out)
	if err := out.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pinnedVersion reads the version from the program itself, so that it cannot be out of date.
func pinnedVersion() string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, module := range info.Deps {
			if module.Path == "k8s.io/kubernetes" {
				return module.Version
			}
		}
	}
	fmt.Fprintln(os.Stderr, "this program was built without k8s.io/kubernetes")
	os.Exit(1)
	return ""
}

// newSource gives every section its own generator, so that one section can grow alone.
func newSource(section uint64) *rand.Rand {
	return rand.New(rand.NewPCG(20261115, section))
}

func pick(source *rand.Rand, choices []string) string {
	return choices[source.IntN(len(choices))]
}

// textOf draws up to longest pieces.
func textOf(source *rand.Rand, pieces []string, longest int) string {
	text := ""
	for range source.IntN(longest + 1) {
		text += pick(source, pieces)
	}
	return text
}

func digits(source *rand.Rand, longest int) string {
	return textOf(source, []string{"0", "0", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "9"}, longest)
}

// distinct drops repetitions and keeps the order.
func distinct(texts []string) []string {
	seen := map[string]bool{}
	kept := []string{}
	for _, text := range texts {
		if !seen[text] {
			seen[text] = true
			kept = append(kept, text)
		}
	}
	return kept
}

// crossed is every combination of one piece from each list.
func crossed(lists ...[]string) []string {
	texts := []string{""}
	for _, list := range lists {
		longer := []string{}
		for _, text := range texts {
			for _, piece := range list {
				longer = append(longer, text+piece)
			}
		}
		texts = longer
	}
	return texts
}
