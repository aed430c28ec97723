// Sections "quantity" and "quantity-pairs".

package main

import (
	"bufio"
	"fmt"
	"math/big"

	"gopkg.in/inf.v0"
	"k8s.io/apimachinery/pkg/api/resource"
)

var suffixes = []string{"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
	"e0", "e1", "e2", "e3", "E3", "e+3", "e-3", "e-9", "e-10", "e18", "E18", "e20", "e60"}

var formatLetters = map[resource.Format]string{
	resource.DecimalSI: "d", resource.BinarySI: "b", resource.DecimalExponent: "e",
}

func quantityInputs() []string {
	source := newSource(1)
	inputs := crossed([]string{"", "-", "+"}, []string{"", "0", "1", ".", "0.", "1.5", ".0001"}, suffixes)
	inputs = append(inputs, crossed([]string{"7", "10", "999", "1000", "1024", "1025", "1536", "0.5", "1.1", "-1.1", "-2.5"}, suffixes)...)
	inputs = append(inputs,
		"", " 1", "1 ", "1.2.3", "..", "1..", "a", "1a", "1K", "1i", "1mi", "1ki", "1KI", "1Kii", "1kk", "1e", "1e+", "1e-",
		"1e3.5", "1ee3", "1E3k", "1+3", "1-3", "1_000", "0x10", "١", "1µ", "∞", "NaN", "inf", "--1", "+-1", "1e99999999999999999999",
		"00", "000.000", "0e0", "0e-30", "-0", "+0", "-0.0", "010", "0010Mi", "+1", "+1Ki", "1.500", "1.234k", "100.Ki", "1.000",
		"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "9223372036854775806.5",
		"9223372036854775807m", "9223372036854775807n", "9223372036854775807k", "8Ei", "7Ei", "-8Ei", "7.9999999999999999999Ei", "8191Pi", "8192Pi",
		"99999999Ei", "0.000000001Ei", "0.0000000000000000001Ei", "0.00000000000000000000000000000000000000001Ei",
		"1.23456789012345678901234567890123456789Gi", "123456789012345678", "1234567890123456789", "12345678901234567890",
		"170141183460469231731687303715884105727", "170141183460469231731687303715884105728", "99999999999999999999999999999999999999",
		"1000000000000000000000000000000000000000000000000001", "0.000000000000000000000000000000000000000000000000001",
		"0.1234567891", "0.9999999999", "999.9999999991n", "0.1n", "-0.1n", "1000E", "1001E", "999999E", "1e21", "1e1000", "1e1000000", "10e1000000",
		"1e2147483647", "1e-10000", "1.5e-1000",
		"1023", "1024", "1025", "-1023", "-1024", "1023.5", "1024.5", "1023Ki", "1024Ki", "1.0009765625Ki", "1.0000000001Ki")
	letters := []string{"0", "1", "9", ".", "-", "+", "e", "E", "K", "M", "i", "m", "u", "n", "k", " "}
	for range 1900 {
		text := pick(source, []string{"", "", "", "-", "+"}) + digits(source, 12)
		if source.IntN(3) == 0 {
			text = pick(source, []string{"", "-"}) + digits(source, 30)
		}
		if source.IntN(2) == 0 {
			text += "." + digits(source, 14)
		}
		inputs = append(inputs, text+pick(source, suffixes))
	}
	for range 600 {
		inputs = append(inputs, textOf(source, letters, 7))
	}
	return distinct(inputs)
}

// printQuantities prints: input, family, canonical text, Value, MilliValue.
//
// "wide" in place of all these: accepted, but it needs more than a 128-bit mantissa. A canonical
// text that does not stand for the same amount has "!" before it. Where Value or MilliValue is not
// the amount rounded away from zero, the right number follows after "/" ("-" if it needs more
// than 64 bits).
func printQuantities(out *bufio.Writer) {
	for _, input := range quantityInputs() {
		quantity, err := resource.ParseQuantity(input)
		if err != nil {
			fmt.Fprintf(out, "%s\tE\n", input)
			continue
		}
		text, fits := canonical(quantity)
		if !fits {
			fmt.Fprintf(out, "%s\twide\n", input)
			continue
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\n", input, formatLetters[quantity.Format], text,
			checked(quantity.Value(), quantity, 0), checked(quantity.MilliValue(), quantity, 3))
	}
}

// printQuantityPairs prints: two inputs, -1, 0 or 1 for their order, their sum, their difference.
func printQuantityPairs(out *bufio.Writer) {
	source := newSource(2)
	fixed := []string{"0", "0Ki", "0e3", "1", "-1", "1n", "1Ki", "1.5Gi", "1024", "100m", "-100m", "1e3", "9223372036854775807", "8Ei", "-8Ei", "1e30", "12345678901234567890123456789"}
	pairs := [][2]string{}
	for _, one := range fixed {
		for _, two := range fixed {
			pairs = append(pairs, [2]string{one, two})
		}
	}
	draw := func() string {
		text := pick(source, []string{"", "", "-"}) + digits(source, 14) + "1"
		if source.IntN(3) == 0 {
			text += "." + digits(source, 8)
		}
		return text + pick(source, suffixes)
	}
	for range 1500 {
		one, two := draw(), draw()
		if source.IntN(6) == 0 {
			two = one
		}
		pairs = append(pairs, [2]string{one, two})
	}
	for _, pair := range pairs {
		one, two := resource.MustParse(pair[0]), resource.MustParse(pair[1])
		order := one.DeepCopy()
		sum, difference := one.DeepCopy(), one.DeepCopy()
		sum.Add(two.DeepCopy())
		difference.Sub(two.DeepCopy())
		fmt.Fprintf(out, "%s\t%s\t%d\t%s\t%s\n", pair[0], pair[1], order.Cmp(two.DeepCopy()), sumText(sum), sumText(difference))
	}
}

func sumText(quantity resource.Quantity) string {
	text, fits := canonical(quantity)
	if !fits {
		return "wide"
	}
	return formatLetters[quantity.Format] + text
}

// canonical gives the canonical text, marked if it lies, and whether the mantissa fits 128 bits.
// The text that the quantity remembers from its input is not asked.
func canonical(quantity resource.Quantity) (text string, fits bool) {
	asked := quantity.DeepCopy()
	mantissa, _ := exact(quantity)
	if mantissa.CmpAbs(new(big.Int).Lsh(big.NewInt(1), 127)) >= 0 {
		return "", false
	}
	number, suffix := asked.CanonicalizeBytes(nil)
	text = string(number) + string(suffix)
	again, err := resource.ParseQuantity(text)
	if err != nil || again.Cmp(quantity.DeepCopy()) != 0 {
		text = "!" + text
	}
	return text, true
}

// exact is the amount as mantissa and power of ten, without trailing zeros.
func exact(quantity resource.Quantity) (mantissa *big.Int, power int) {
	copied := quantity.DeepCopy()
	decimal := new(inf.Dec).Set(copied.AsDec())
	mantissa, power = new(big.Int).Set(decimal.UnscaledBig()), -int(decimal.Scale())
	ten, rest := big.NewInt(10), new(big.Int)
	for mantissa.Sign() != 0 {
		shorter := new(big.Int)
		if shorter.QuoRem(mantissa, ten, rest); rest.Sign() != 0 {
			break
		}
		mantissa, power = shorter, power+1
	}
	return mantissa, power
}

// checked prints got, and after it what the amount times 10^places is when rounded away from zero,
// if that is something else.
func checked(got int64, quantity resource.Quantity, places int) string {
	mantissa, power := exact(quantity)
	want := "-"
	if shift := power + places; mantissa.Sign() == 0 {
		want = "0"
	} else if shift <= 40 {
		rounded := new(big.Int).Set(mantissa)
		if shift >= 0 {
			rounded.Mul(rounded, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(shift)), nil))
		} else {
			rest := new(big.Int)
			rounded.QuoRem(rounded, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-shift)), nil), rest)
			rounded.Add(rounded, big.NewInt(int64(rest.Sign())))
		}
		if rounded.IsInt64() {
			want = rounded.String()
		}
	}
	if said := fmt.Sprint(got); said != want {
		return said + "/" + want
	}
	return want
}
