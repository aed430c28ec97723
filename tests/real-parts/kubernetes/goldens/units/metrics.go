package main

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// metricNumbers are the values that metrics have at their edges: counts, bytes, seconds, bounds.
var metricNumbers = []float64{
	0, math.Copysign(0, -1), 1, -1, 2, 10, 0.5, -0.5, 0.005, 0.025, 0.1, 0.25, 2.5, 1.0 / 3,
	0.001, 0.0001, 0.00012345, 0.00001, 0.000012345, 1e-9, -1e-05,
	99999, 99999.5, 100000, 123456, 999999, 999999.5, 999999.9999, 1000000, -1000000, 1000001,
	1048576, 10485760, 123456789, 1e7, 1e9, 1e15, 1e16, 1e20, 1e21, 1e22, 1e100, 1.5e300,
	9007199254740991, 9007199254740992, 9007199254740993, math.MaxUint32, math.MaxUint64,
	1763517600, 1763517600.25, 1.7635176001234567e+09, 3.0517578125e-05,
	math.Pi, math.E, math.MaxFloat64, math.SmallestNonzeroFloat64, 2.2250738585072014e-308,
	math.Inf(1), math.Inf(-1), math.NaN(),
}

// printMetricNumbers prints the bits of each number, what stands after a metric's name, and what
// stands in the label of a bucket with that bound.
func printMetricNumbers(out *bufio.Writer) {
	source := newSource(9)
	numbers := append([]float64{}, metricNumbers...)
	for range 400 {
		numbers = append(numbers,
			math.Float64frombits(source.Uint64()),
			math.Exp((source.Float64()-0.5)*80),
			float64(source.Uint64()>>source.IntN(64)),
			float64(source.IntN(100000000))/1000)
	}
	for _, number := range numbers {
		value, bound := inMetric(number)
		fmt.Fprintf(out, "%016x\t%s\t%s\n", math.Float64bits(number), value, bound)
	}
}

func inMetric(number float64) (string, string) {
	name, gauge, histogram := "m", dto.MetricType_GAUGE, dto.MetricType_HISTOGRAM
	count := uint64(1)
	value := textOfMetric(&dto.MetricFamily{Name: &name, Type: &gauge,
		Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &number}}}})
	bucket := textOfMetric(&dto.MetricFamily{Name: &name, Type: &histogram,
		Metric: []*dto.Metric{{Histogram: &dto.Histogram{SampleCount: &count,
			Bucket: []*dto.Bucket{{UpperBound: &number, CumulativeCount: &count}}}}}})
	return strings.TrimSpace(strings.TrimPrefix(value, "# TYPE m gauge\nm ")),
		strings.Split(bucket, `"`)[1]
}

func textOfMetric(family *dto.MetricFamily) string {
	var text bytes.Buffer
	if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return text.String()
}
