// Sections "duration", "cpu-set", "ip", "names" and "sizes".

package main

import (
	"bufio"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"k8s.io/utils/cpuset"
	netutils "k8s.io/utils/net"
)

// printDurations prints: input, nanoseconds, text.
func printDurations(out *bufio.Writer) {
	source := newSource(3)
	units := []string{"ns", "us", "µs", "μs", "ms", "s", "m", "h"}
	inputs := crossed([]string{"", "-", "+"}, []string{"", "0", "1", ".5", "1.", "1.5", ".", "90", "100", "1000", "3600"}, append([]string{""}, units...))
	inputs = append(inputs, "2h45m", "1h0m0s", "1m0s", "1h1h", "1s1m1h", "1h1.5m.5s", "1 h", " 1s", "1s ", "1S", "1d", "1y", "1sec", "s", "h1", "1h-1m", "1h+1m", "--1s", "+-1s",
		"1e3s", "0x1s", "1_0s", "∞", "1h1", "00s", "007s", "0.0s", "-0s", "-0.0s", "1..5s", "1.5.5s", "1.5s.5", "١s", "1\u00b5", "1\u03bc",
		"9223372036854775807ns", "9223372036854775808ns", "-9223372036854775808ns", "-9223372036854775809ns", "9223372036854775807.9ns",
		"9223372036854775808ns9223372036854775808ns", "-9223372036854775808ns9223372036854775808ns", "-9223372036854775808ns1ns", "9223372036854775807ns1ns",
		"9223372036.854775807s", "9223372036.854775808s", "-9223372036.854775808s", "9223372036.8547758079s", "2562047h47m16.854775807s", "2562047h47m16.854775808s", "-2562047h47m16.854775808s", "2562048h",
		"153722867m", "153722868m", "99999999999999999999s", "18446744073709551616ns", "1.99999999999999999999999h", "0.9999999999999999999999999s", "0.100000000000000000000h", "0.3333333333333333333h",
		"0.9223372036854775807h", "0.9223372036854775808h", "0.92233720368547758079h", "0.1ns", "0.9ns", "1.9ns", "0.00000000000000000000000000001h", "1h0.0000000000000000000s")
	for range 1500 {
		text := pick(source, []string{"", "", "", "-", "+"})
		for range 1 + source.IntN(3) {
			text += digits(source, 7)
			if source.IntN(2) == 0 {
				text += "." + digits(source, 22)
			}
			text += pick(source, units)
		}
		inputs = append(inputs, text)
	}
	for range 400 {
		inputs = append(inputs, textOf(source, []string{"0", "1", "9", ".", "-", "+", "s", "m", "h", "n", "u", "µ", " "}, 7))
	}
	for range 600 {
		inputs = append(inputs, time.Duration(int64(source.Uint64())>>source.IntN(63)).String())
	}
	for _, input := range distinct(inputs) {
		if duration, err := time.ParseDuration(input); err != nil {
			fmt.Fprintf(out, "%s\tE\n", input)
		} else {
			fmt.Fprintf(out, "%s\t%d\t%s\n", input, duration.Nanoseconds(), duration)
		}
	}
}

// printCPUSets prints: input, size, canonical list.
func printCPUSets(out *bufio.Writer) {
	source := newSource(4)
	inputs := []string{"", "0", "0-3", "0-3,7", "7,0-3", "0,1,2,3", "3-1", "1-1", "0-", "-1", "-", ",", "0,", ",0", "0,,1", "a", "0-a", "a-0", " 0", "0 ", "0, 1", "0-1-2", "0--1", "0--0", "1--2",
		"+1", "0-+3", "+0-+3", "00-03", "007", "1.5", "0x1", "0:3", "0-3:2", "99999999999999999999", "1_0", "0-2,1-5,5-6,9", "0-1,2-3", "10,9,8,1-2", "0\u00a0"}
	for range 500 {
		parts := []string{}
		for range 1 + source.IntN(6) {
			first := source.IntN(70)
			if source.IntN(2) == 0 {
				parts = append(parts, fmt.Sprint(first))
			} else {
				parts = append(parts, fmt.Sprintf("%d-%d", first, first+source.IntN(12)-1))
			}
		}
		inputs = append(inputs, strings.Join(parts, ","))
	}
	for range 300 {
		inputs = append(inputs, textOf(source, []string{"0", "1", "5", "-", ",", "+", " "}, 6))
	}
	for _, input := range distinct(inputs) {
		if set, err := cpuset.Parse(input); err != nil {
			fmt.Fprintf(out, "%s\tE\n", input)
		} else {
			fmt.Fprintf(out, "%s\t%d\t%s\n", input, set.Size(), set)
		}
	}
}

// printAddresses prints lines of three kinds: "ip", an input and its address; "cidr", an input, the
// address and the network; "node", a --node-ip, its addresses, and the parts set aside.
func printAddresses(out *bufio.Writer) {
	source := newSource(5)
	inputs := []string{"", ".", ":", "::", ":::", "::1", "1::", "1::2", "::1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1:2:3:4::5:6:7:8", "1:2:3:4:5:6:7:8::",
		"1.2.3.4", "01.02.03.04", "010.000.0000.00001", "256.1.1.1", "1.2.3", "1.2.3.4.5", "1.2.3.", ".1.2.3", "1..2.3", "1.2.3.4 ", " 1.2.3.4", "1.2.3.-4", "1.2.3.+4", "a.b.c.d", "0.0.0.0", "255.255.255.255",
		"::ffff:1.2.3.4", "::ffff:0102:0304", "::FFFF:001.002.3.4", "::1.2.3.4", "1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:7:1.2.3.4", "1:2:3:4:5:1.2.3.4", "1.2.3.4::", "::1.2.3.4:5", "1:2:3:4:5::1.2.3.4", "1:2:3:4:5:6::1.2.3.4", "::1.2.3", "::1.2.3.256",
		"fe80::1%eth0", "[::1]", "00001::1", "0ffff::", "1ffff::", "g::", "::-1", "::+1", "1:", ":1", "1::2::3", "FD00::ABCD", "2001:db8::8a2e:370:7334", "1", "localhost", "16777215.0.0.1", "99999999999.0.0.1", "1.2.3.4:80", "::000000000000000000001"}
	for range 400 {
		inputs = append(inputs, fmt.Sprintf("%s.%s.%s.%s", digits(source, 3), digits(source, 3), digits(source, 3), digits(source, 3)))
		inputs = append(inputs, textOf(source, []string{"0", "1", "f", "A", ":", ":", "::", ".", "12.0.0.1", "ffff", "1:2:3"}, 9))
	}
	inputs = distinct(inputs)
	for _, input := range inputs {
		if address := netutils.ParseIPSloppy(input); address == nil {
			fmt.Fprintf(out, "ip\t%s\tE\n", input)
		} else {
			fmt.Fprintf(out, "ip\t%s\t%s\n", input, address)
		}
	}
	lengths := []string{"/0", "/1", "/8", "/24", "/31", "/32", "/33", "/64", "/90", "/95", "/96", "/97", "/120", "/128", "/129", "/", "/-1", "/+8", "/08", "/0000000000000000000008", "/8/8", "/a", "/ 8", "/99999999999", ""}
	cidrs := crossed([]string{"10.1.2.3", "010.1.2.3", "0.0.0.0", "255.255.255.255", "::", "fd00:1:2:3:4:5:6:7", "::ffff:10.1.2.3", "1.2.3", "", "::1.2.3.4"}, lengths)
	for index, input := range inputs {
		cidrs = append(cidrs, input+lengths[index%14])
	}
	for _, input := range distinct(cidrs) {
		if address, network, err := netutils.ParseCIDRSloppy(input); err != nil {
			fmt.Fprintf(out, "cidr\t%s\tE\n", input)
		} else {
			fmt.Fprintf(out, "cidr\t%s\t%s\t%s\n", input, address, network)
		}
	}
	one := []string{"10.0.0.1", "010.0.0.2", "fd00::1", "::ffff:10.0.0.3", "0.0.0.0", "::", "x", "", " 10.0.0.4 "}
	lists := append(crossed(one), crossed(one, []string{","}, one)...)
	lists = append(lists, "10.0.0.1,fd00::1,10.0.0.2", "10.0.0.1,x,fd00::1", "10.0.0.1,fd00::1,", ",,,", "\u00a010.0.0.1")
	for _, input := range lists {
		for _, provider := range []string{"external", "other"} {
			addresses, ignored, err := nodeutil.ParseNodeIPArgument(input, provider)
			if err != nil {
				fmt.Fprintf(out, "node\t%s\t%s\tE\n", provider, input)
				continue
			}
			texts := []string{}
			for _, address := range addresses {
				texts = append(texts, address.String())
			}
			fmt.Fprintf(out, "node\t%s\t%s\t%s\t%s\n", provider, input, strings.Join(texts, " "), strings.Join(ignored, "|"))
		}
	}
}

// printNames prints: input, and four marks (y or n) for label key, label value, DNS subdomain and
// DNS label.
func printNames(out *bufio.Writer) {
	source := newSource(6)
	long := func(count int) string { return strings.Repeat("a", count) }
	inputs := []string{"", "a", "A", "0", "-", "_", ".", "/", "a/", "/a", "a/b", "a/b/c", "a//b", "a.b", "a..b", ".a", "a.", "-a", "a-", "a-b", "a_b", "_a", "a_", "a-.b", "a.-b", "a._b", "a b", " a", "a ", "ä", "a/ä", "ä/a", "A/b", "a/B", "a.b/c", "a.B/c", "a-/b", "a..b/c", "a_b/c",
		"kubernetes.io/hostname", "node-role.kubernetes.io/control-plane", "example.com/My.Name_1", "example.com/", "1.2.3.4", "a\u00a0",
		long(62), long(63), long(64), long(252), long(253), long(254), long(63) + "." + long(64), long(253) + "/a", long(254) + "/a", "a/" + long(63), "a/" + long(64), strings.Repeat("ä", 32), strings.Repeat("a.", 126) + "a", strings.Repeat("a.", 127) + "a"}
	for range 900 {
		inputs = append(inputs, textOf(source, []string{"a", "b", "Z", "0", "-", "_", ".", "/", "a", "1"}, 6))
	}
	mark := func(problems []string) string {
		if len(problems) == 0 {
			return "y"
		}
		return "n"
	}
	for _, input := range distinct(inputs) {
		fmt.Fprintf(out, "%s\t%s%s%s%s\n", input, mark(validation.IsQualifiedName(input)), mark(validation.IsValidLabelValue(input)),
			mark(validation.IsDNS1123Subdomain(input)), mark(validation.IsDNS1123Label(input)))
	}
}

// printSizes prints lines of two kinds: "log", an input and its size in bytes if the quantity is in
// the short form that containerLogMaxSize needs; "threshold", an input, what it means as a hard
// eviction threshold and what as a minimum reclaim: "E" refused, "off" ignored, an amount, or a
// percentage as the amount of a capacity of 123456789012345.
func printSizes(out *bufio.Writer) {
	source := newSource(7)
	logs := crossed([]string{"0", "1", "10", "-1", "+5", "1.5", "1.0", "12345678901234", "999999999999999999", "1000000000000000000", "", "99", "100"}, suffixes)
	logs = append(logs, "9223372036854775807", "10Mi", "100Mi", "1Ti", "99Ti", "100Ti", "x", "10%", "1.500k", "0.001k", "1.0001k")
	for _, input := range distinct(logs) {
		quantity, err := resource.ParseQuantity(input)
		if err != nil {
			fmt.Fprintf(out, "log\t%s\tE\n", input)
		} else if bytes, ok := quantity.AsInt64(); !ok {
			fmt.Fprintf(out, "log\t%s\tE\n", input)
		} else {
			fmt.Fprintf(out, "log\t%s\t%d\n", input, bytes)
		}
	}
	inputs := []string{"", "%", "%%", "0%", "100%", "0.0%", "100.0%", "00%", "-0%", "+0%", "10%", "10%%", "10 %", " 10%", "10.5%", ".5%", "5.%", "1e1%", "1E1%", "1e-3%", "-1%", "-0.1%", "100.1%", "101%", "100.000001%", "1e3%", "inf%", "-inf%", "nan%", "0x1p3%", "abc%", "1_0%", "1__0%", "_1%", "1_%", "1_.5%", "1._5%", "1.2_5%", "1e0_1%", "1e_1%", "0_5%", "-_5%", "+10%", "--1%", "1e%", "1e400%", "1,5%",
		"0", "0Mi", "-1", "-100Mi", "1", "100Mi", "1.5Gi", "100m", "1n", "10e6", "x", "10%Mi", "%10", "1k%"}
	for range 300 {
		inputs = append(inputs, pick(source, []string{"", "", "-"})+digits(source, 3)+pick(source, []string{"", ".", ".5", ".25", ".123456789"})+pick(source, []string{"%", "%", "%", "Mi", "", "%%"}))
	}
	capacity := resource.MustParse("123456789012345")
	show := func(value evictionapi.ThresholdValue) string {
		amount := evictionapi.GetThresholdQuantity(value, &capacity)
		number, suffix := amount.CanonicalizeBytes(nil)
		return string(number) + string(suffix)
	}
	signal := "memory.available"
	for _, input := range distinct(inputs) {
		said := [2]string{"E", "E"}
		if thresholds, err := eviction.ParseThresholdConfig(nil, map[string]string{signal: input}, nil, nil, nil); err == nil {
			said[0] = "off"
			if len(thresholds) == 1 {
				said[0] = show(thresholds[0].Value)
			}
		}
		if thresholds, err := eviction.ParseThresholdConfig(nil, map[string]string{signal: "1"}, nil, nil, map[string]string{signal: input}); err == nil {
			said[1] = show(*thresholds[0].MinReclaim)
		}
		fmt.Fprintf(out, "threshold\t%s\t%s\t%s\n", input, said[0], said[1])
	}
}
