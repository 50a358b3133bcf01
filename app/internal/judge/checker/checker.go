// Package checker is the default output validator of the Kattis/ICPC problem
// package format: it compares a program's output with the answer file token by
// token.
//
// Tokens are separated by the six white-space bytes of the C locale. Letters
// A-Z and a-z are equal unless case_sensitive is given; no other letters are
// folded. With a tolerance, a token of the answer that is a decimal number
// (sign, digits, point, exponent; not inf, nan, hexadecimal or a digit
// separator) is compared as a number, whether it is written as an integer or
// not, and it is enough that one of the two tolerances holds.
//
// Three rules make an answer file with foreign line endings harmless: CRLF
// counts as LF everywhere, a byte-order mark that opens the answer is skipped
// (and then in the output too), and with space_change_sensitive an answer
// without a final newline also accepts an output that has one.
package checker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
)

// Options says how tokens are compared. The zero value is the default
// validator without flags. Options are not changed after Parse, so one value
// serves any number of goroutines.
type Options struct {
	caseSensitive  bool
	spaceSensitive bool
	absolute       tolerance
	relative       tolerance
}

// tolerance tells "not given" from "given as 0": the latter still compares
// numbers as numbers.
type tolerance struct {
	given bool
	value float64
}

// Result is one comparison's outcome.
type Result struct {
	Accepted bool
	// Message says where the first difference is and what stood there; it is
	// empty when the output is accepted. It is printable UTF-8 of at most
	// MaxMessage bytes. It quotes the answer file, so show it to the jury, not
	// to the team.
	Message string
}

// MaxMessage bounds Result.Message, in bytes.
const MaxMessage = 200

// Parse reads validator flags, one word an element:
//
//	case_sensitive
//	space_change_sensitive
//	float_absolute_tolerance E
//	float_relative_tolerance E
//	float_tolerance E             (both at once)
//
// A repeated flag counts as its last occurrence. Every fault is reported, joined.
func Parse(flags []string) (*Options, error) {
	o := &Options{}
	var faults []error
	for i := 0; i < len(flags); i++ {
		flag := flags[i]
		switch flag {
		case "case_sensitive":
			o.caseSensitive = true
		case "space_change_sensitive":
			o.spaceSensitive = true
		case "float_absolute_tolerance", "float_relative_tolerance", "float_tolerance":
			i++
			if i == len(flags) {
				faults = append(faults, fmt.Errorf("validator flag %s has no value; write one, such as %s 1e-6", flag, flag))
				continue
			}
			value, ok := parseNumber([]byte(flags[i]))
			if !ok || value < 0 {
				faults = append(faults, fmt.Errorf("validator flag %s has the value %s; write a number >= 0, such as 1e-6",
					flag, quote([]byte(flags[i]), 0)))
				continue
			}
			t := tolerance{given: true, value: value}
			if flag != "float_relative_tolerance" {
				o.absolute = t
			}
			if flag != "float_absolute_tolerance" {
				o.relative = t
			}
		default:
			faults = append(faults, fmt.Errorf("unknown validator flag %s; the default validator has case_sensitive, "+
				"space_change_sensitive, float_tolerance, float_absolute_tolerance and float_relative_tolerance",
				quote([]byte(flag), 0)))
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return o, nil
}

// Check compares an output with the answer. It never fails: whatever bytes the
// output holds, the result is accepted or not.
func (o *Options) Check(answer, output []byte) Result {
	// Reading from memory cannot fail, so the error is always nil.
	r, _ := o.CheckReaders(bytes.NewReader(answer), bytes.NewReader(output))
	return r
}

// CheckReaders is Check for streams. It holds a fixed amount of memory whatever
// their length, and stops reading at the first difference. An error is a read
// that failed: it says nothing about the output, so it must not become a
// verdict on the submission.
func (o *Options) CheckReaders(answer, output io.Reader) (Result, error) {
	c := comparison{o: o, answer: newScanner(answer), output: newScanner(output)}
	if c.answer.skipMark() {
		c.output.skipMark()
	}
	message := c.run()
	if err := c.answer.err; err != nil {
		return Result{}, fmt.Errorf("read the answer: %w", err)
	}
	if err := c.output.err; err != nil {
		return Result{}, fmt.Errorf("read the output: %w", err)
	}
	return Result{Accepted: message == "", Message: message}, nil
}

// numeric reports whether a tolerance was given.
func (o *Options) numeric() bool { return o.absolute.given || o.relative.given }

// close reports whether two finite numbers are within one of the tolerances.
func (o *Options) close(want, got float64) bool {
	diff := math.Abs(want - got)
	if math.IsInf(diff, 0) {
		// The difference of two finite numbers left the range: it is larger
		// than any tolerance that could be written, but an overflowing
		// relative bound would compare as equal to it.
		return false
	}
	return o.absolute.given && diff <= o.absolute.value ||
		o.relative.given && diff <= o.relative.value*math.Abs(want)
}
