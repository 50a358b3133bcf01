package checker

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

func parse(t testing.TB, flags string) *Options {
	t.Helper()
	o, err := Parse(strings.Fields(flags))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

const bom = "\xef\xbb\xbf"

type check struct {
	name           string
	flags          string
	answer, output string
	accepted       bool
}

func checks() []check {
	return slices.Concat(tokenChecks(), spaceChecks(), toleranceChecks(), numberChecks())
}

// tokenChecks are about tokens, their bytes and their case.
func tokenChecks() []check {
	return []check{
		// Tokens and white space.
		{"same", "", "1 2\n", "1 2\n", true},
		{"other white space", "", "1 2\n3\n", "  1\t2 \v\f 3", true},
		{"both empty", "", "", "", true},
		{"blank against empty", "", "\n \n", "", true},
		{"empty against blank", "", "", " \n\n", true},
		{"missing token", "", "1 2", "1", false},
		{"nothing printed", "", "1", "", false},
		{"trailing token", "", "1", "1 2", false},
		{"joined tokens", "", "1 2", "12", false},
		{"prefix", "", "abc", "ab", false},
		{"longer", "", "ab", "abc", false},
		{"crlf answer", "", "a\r\nb\r\n", "a\nb\n", true},
		{"crlf output", "", "a\nb\n", "a\r\nb\r\n", true},
		{"bom answer", "", bom + "a\n", "a\n", true},
		{"bom both", "", bom + "a\n", bom + "a\n", true},
		{"bom output only", "", "a\n", bom + "a\n", false},
		{"no final newline in answer", "", "a", "a\n", true},
		{"nul is not white space", "", "a b", "a\x00b", false},
		{"nul after the token", "", "a", "a\x00", false},
		{"equal nul", "", "a\x00b", "a\x00b", true},
		{"invalid utf-8 equal", "", "\xff\xfe", "\xff\xfe", true},
		{"invalid utf-8 differs", "", "\xff\xfe", "\xff\xfd", false},
		{"no-break space is not white space", "", "a b", "a\u00a0b", false},

		// Case.
		{"case ignored", "", "Yes", "yES", true},
		{"case sensitive", "case_sensitive", "Yes", "yes", false},
		{"case sensitive same", "case_sensitive", "Yes", "Yes", true},
		{"only ASCII is folded", "", "É", "é", false},
		{"neighbours of letters are not folded", "", "[", "{", false},
		{"at sign against grave", "", "@", "`", false},

		// Numbers without a tolerance are text.
		{"no tolerance", "", "1", "1.0", false},
		{"no tolerance, leading zero", "", "1", "01", false},
	}
}

// spaceChecks are about space_change_sensitive.
func spaceChecks() []check {
	return []check{
		{"space same", "space_change_sensitive", "1 2\n", "1 2\n", true},
		{"space more", "space_change_sensitive", "1 2\n", "1  2\n", false},
		{"space fewer", "space_change_sensitive", "1  2\n", "1 2\n", false},
		{"space kind", "space_change_sensitive", "1 2\n", "1\t2\n", false},
		{"space leading", "space_change_sensitive", "1\n", " 1\n", false},
		{"space before line end", "space_change_sensitive", "1\n", "1 \n", false},
		{"space missing final newline in output", "space_change_sensitive", "1\n", "1", false},
		{"space missing final newline in answer", "space_change_sensitive", "1", "1\n", true},
		{"space missing final newline in both", "space_change_sensitive", "1", "1", true},
		{"space two final newlines", "space_change_sensitive", "1", "1\n\n", false},
		{"space token after the final newline", "space_change_sensitive", "1", "1\n2", false},
		{"space crlf answer", "space_change_sensitive", "1\r\n2\r\n", "1\n2\n", true},
		{"space crlf output", "space_change_sensitive", "1\n2\n", "1\r\n2\r\n", true},
		{"space crlf answer without the last", "space_change_sensitive", "1\r\n2", "1\n2\n", true},
		{"space bom answer", "space_change_sensitive", bom + "1\n", "1\n", true},
		{"space empty answer", "space_change_sensitive", "", "\n", false},
		{"space lone cr", "space_change_sensitive", "1\r2", "1\n2", false},
		{"space still ignores case", "space_change_sensitive", "A\n", "a\n", true},
		{"space and case", "space_change_sensitive case_sensitive", "A\n", "a\n", false},
		{"space tolerance", "space_change_sensitive float_tolerance 1e-3", "1.0\n", "1.0001\n", true},
	}
}

// toleranceChecks are about which distance is accepted and how a number may be written.
func toleranceChecks() []check {
	return []check{
		{"absolute within", "float_absolute_tolerance 1e-6", "0.5", "0.5000009", true},
		{"absolute beyond", "float_absolute_tolerance 1e-6", "0.5", "0.500002", false},
		{"absolute below", "float_absolute_tolerance 1e-6", "0.5", "0.4999991", true},
		{"absolute is not relative", "float_absolute_tolerance 1e-6", "1000000", "1000000.5", false},
		{"relative within", "float_relative_tolerance 1e-6", "1000000", "1000000.5", true},
		{"relative beyond", "float_relative_tolerance 1e-6", "1000000", "1000002", false},
		{"relative to the answer", "float_relative_tolerance 0.5", "1", "2", false},
		{"relative to the answer, reverse", "float_relative_tolerance 0.5", "2", "1", true},
		{"relative at zero", "float_relative_tolerance 1e-6", "0", "1e-9", false},
		{"relative negative answer", "float_relative_tolerance 1e-6", "-1000000", "-1000000.5", true},
		{"either: absolute", "float_tolerance 1e-6", "0", "1e-7", true},
		{"either: relative", "float_tolerance 1e-6", "1e9", "1000000100", true},
		{"neither", "float_tolerance 1e-6", "1e9", "1000010000", false},
		{"two tolerances, absolute holds", "float_absolute_tolerance 1 float_relative_tolerance 0", "5", "5.5", true},
		{"two tolerances, relative holds", "float_absolute_tolerance 0 float_relative_tolerance 1e-1", "5", "5.4", true},
		{"last flag wins", "float_tolerance 1 float_tolerance 1e-6", "5", "5.5", false},
		{"zero tolerance compares numbers", "float_tolerance 0", "5", "5.000", true},
		{"zero tolerance is exact", "float_tolerance 0", "5", "5.0001", false},
		{"integers as numbers", "float_tolerance 1e-6", "5", "5.0", true},
		{"integers within", "float_absolute_tolerance 1", "5", "6", true},
		{"formats", "float_tolerance 1e-9", "0.0314", "3.14000000e-2", true},
		{"point first", "float_tolerance 1e-9", "0.5", ".5", true},
		{"point last", "float_tolerance 1e-9", "1", "1.", true},
		{"plus sign", "float_tolerance 1e-9", "1", "+1", true},
		{"minus zero", "float_tolerance 1e-9", "0", "-0", true},
		{"minus zero answer", "float_relative_tolerance 1e-9", "-0", "0.0", true},
		{"sign alone is text", "float_tolerance 1", "+", "-", false},
		{"point alone is text", "float_tolerance 1", ".", "0", false},
		{"exponent without digits", "float_tolerance 1", "1", "1e", false},
		{"exponent without mantissa", "float_tolerance 1", "1", "e1", false},
		{"two points", "float_tolerance 1", "1", "1.0.0", false},
	}
}

// numberChecks are about what is a number and what is text.
func numberChecks() []check {
	return []check{
		{"text stays text", "float_tolerance 1", "yes 1", "YES 1.5", true},
		{"text against number", "float_tolerance 1", "yes", "1", false},
		{"number against text", "float_tolerance 1", "1", "yes", false},
		{"junk after the number", "float_tolerance 1", "1", "1x", false},
		{"nul after the number", "float_tolerance 1", "1", "1\x00", false},
		{"nan is no number", "float_tolerance 1e9", "1", "nan", false},
		{"inf is no number", "float_tolerance 1e9", "1", "inf", false},
		{"minus infinity is no number", "float_tolerance 1e9", "1", "-Infinity", false},
		{"nan as text", "float_tolerance 1", "nan", "NaN", true},
		{"inf as text", "float_tolerance 1", "inf", "-inf", false},
		{"hexadecimal is no number", "float_tolerance 1", "16", "0x10", false},
		{"hexadecimal answer is text", "float_tolerance 1", "0x10", "16", false},
		{"hexadecimal float is no number", "float_tolerance 1", "1", "0x1p0", false},
		{"underscore is no number", "float_tolerance 1", "1000", "1_000", false},
		{"comma is no point", "float_tolerance 1", "1.5", "1,5", false},
		{"other digits are no number", "float_tolerance 1", "1", "\u0661", false},
		{"beyond range, same", "float_tolerance 1", "1e400", "1e400", true},
		{"beyond range, case", "float_tolerance 1", "1e400", "1E400", true},
		{"beyond range, other", "float_tolerance 1", "1e400", "1e401", false},
		{"beyond range against a number", "float_relative_tolerance 1", "1", "1e400", false},
		{"beyond range against infinity", "float_tolerance 1", "1e400", "inf", false},
		{"difference beyond range", "float_relative_tolerance 1e300", "1e308", "-1.7e308", false},
		{"below range is zero", "float_tolerance 1e-9", "0", "1e-400", true},
		{"enormous exponent", "float_tolerance 1", "1", "1e99999999999999999999", false},
		{"thirty digits", "float_tolerance 1e-9", "123456789012345678901234567890.123456789012345678901234567890",
			"1.23456789012345678901234567890e29", true},
		{"long number", "float_tolerance 1e-9", "1", "1." + strings.Repeat("0", 3000), true},
		{"number too long to be one", "float_tolerance 1e-9", "1", "1." + strings.Repeat("0", 5000), false},
		{"answer too long to be a number", "float_tolerance 1e-9", "1." + strings.Repeat("0", 5000),
			"1." + strings.Repeat("0", 5000), true},
	}
}

func TestCheck(t *testing.T) {
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			o := parse(t, c.flags)
			got := o.Check([]byte(c.answer), []byte(c.output))
			if got.Accepted != c.accepted {
				t.Fatalf("accepted = %v, want %v: %s", got.Accepted, c.accepted, got.Message)
			}
			safe(t, got)
			// The way the bytes arrive must not matter.
			slow, err := o.CheckReaders(iotest.OneByteReader(strings.NewReader(c.answer)),
				iotest.DataErrReader(strings.NewReader(c.output)))
			if err != nil || slow != got {
				t.Fatalf("from readers: %+v, %v; from memory: %+v", slow, err, got)
			}
		})
	}
}

// safe fails unless the message may be stored and shown as it is.
func safe(t testing.TB, r Result) {
	t.Helper()
	if r.Accepted != (r.Message == "") {
		t.Fatalf("accepted %v with the message %q", r.Accepted, r.Message)
	}
	if len(r.Message) > MaxMessage || !utf8.ValidString(r.Message) {
		t.Fatalf("unsafe message (%d bytes): %q", len(r.Message), r.Message)
	}
	for _, c := range r.Message {
		if c < ' ' || c == 0x7f {
			t.Fatalf("control character in %q", r.Message)
		}
	}
}

func TestMessage(t *testing.T) {
	long := strings.Repeat("a", 10_000)
	for _, c := range []struct{ flags, answer, output, want string }{
		{"", "1 2\n3 4", "1 2\n 3 5", `line 2, column 4, token 4: expected "4", got "5"`},
		{"", "1\n2", "1\n", `line 2, column 1, token 2: expected "2", got the end of the output`},
		{"", "1", "1\n\n9 9", `line 3, column 1, token 2: expected the end of the output, got "9"`},
		{"", "a", "\x00\u202e\xff", `line 1, column 1, token 1: expected "a", got "\x00\u202e\xff"`},
		{"", "abcdefghijklmnop", "abcdefghijklXnop", `line 1, column 13, token 1: expected …"efghijklmnop", got …"efghijklXnop"`},
		{"", long + "b", long + "c", `line 1, column 10001, token 1: expected …"aaaaaaaab", got …"aaaaaaaac"`},
		{"", long, "b", `line 1, column 1, token 1: expected "aaaaaaaaaaaaaaaaaaaaaaaa"…, got "b"`},
		{"float_tolerance 1", "1", "x", `line 1, column 1, token 1: expected the number "1", got "x"`},
		{"float_tolerance 1", "1", "3", `line 1, column 1, token 1: expected "1" within the tolerance, got "3"`},
		{"space_change_sensitive", "1 2", "1\n2", `line 1, column 2, token 2: expected a space, got a line end`},
		{"space_change_sensitive", "1\n", "1", `line 1, column 2, token 2: expected a line end, got the end of the output`},
		{"space_change_sensitive", "1\t2", "1\v2", `line 1, column 2, token 2: expected a tab, got the white-space byte "\v"`},
		{"space_change_sensitive", "12", "1 2", `line 1, column 2, token 1: expected "12", got "1"`},
		{"space_change_sensitive", "1", " 1", `line 1, column 1, token 1: expected "1", got a space`},
	} {
		got := parse(t, c.flags).Check([]byte(c.answer), []byte(c.output))
		safe(t, got)
		if got.Message != c.want {
			t.Errorf("answer %.20q, output %.20q:\n got %s\nwant %s", c.answer, c.output, got.Message, c.want)
		}
	}
}

func TestParseFaults(t *testing.T) {
	for flags, want := range map[string]string{
		"float_tolerance":                "has no value",
		"float_tolerance x":              `has the value "x"`,
		"float_tolerance -1":             "write a number >= 0",
		"float_tolerance nan":            "write a number",
		"float_absolute_tolerance inf":   "write a number",
		"float_relative_tolerance 1e999": "write a number",
		"float_tolerance 0x1p-3":         "write a number",
		"CASE_SENSITIVE":                 `unknown validator flag "CASE_SENSITIVE"`,
		"1e-6":                           "unknown validator flag",
	} {
		_, err := Parse(strings.Fields(flags))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", flags, err, want)
		}
	}
	_, err := Parse([]string{"what", "float_tolerance", "x", "case_sensitive", "why"})
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("three faults gave %v", err)
	}
}

func TestZeroOptions(t *testing.T) {
	if r := (&Options{}).Check([]byte("A 1"), []byte("a\n1\n")); !r.Accepted {
		t.Error(r.Message)
	}
}

// A read that fails is no verdict.
func TestReadFailure(t *testing.T) {
	broken := errors.New("device gone")
	o := &Options{}
	if _, err := o.CheckReaders(iotest.ErrReader(broken), strings.NewReader("1")); !errors.Is(err, broken) {
		t.Errorf("answer: %v", err)
	}
	half := io.MultiReader(strings.NewReader("1 "), iotest.ErrReader(broken))
	if _, err := o.CheckReaders(strings.NewReader("1 2"), half); !errors.Is(err, broken) {
		t.Errorf("output: %v", err)
	}
	if _, err := o.CheckReaders(strings.NewReader("1"), idle{}); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("idle reader: %v", err)
	}
}

type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

// endless repeats a pattern up to a length without holding it.
type endless struct {
	pattern string
	left    int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	// Whole patterns only, and each copy doubles what is there.
	n := min(len(p), e.left)
	n -= n % len(e.pattern)
	for k := copy(p[:n], e.pattern); k < n; k *= 2 {
		copy(p[k:n], p[:k])
	}
	e.left -= n
	return n, nil
}

// Memory must not follow the length of the output, of one token, or of one run
// of white space.
func TestFlatMemory(t *testing.T) {
	const size = 3 << 18 // a multiple of every pattern's length
	for _, pattern := range []string{"x", " ", "\n", "0", "1.5 ", "word\r\n"} {
		for _, flags := range []string{"", "space_change_sensitive", "float_tolerance 1e-6"} {
			o := parse(t, flags)
			a := testing.AllocsPerRun(1, func() {
				r, err := o.CheckReaders(&endless{pattern, size}, &endless{pattern, size})
				if err != nil || !r.Accepted {
					t.Fatal(r, err)
				}
			})
			if a > 20 {
				t.Errorf("%q with %q: %v allocations", pattern, flags, a)
			}
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, c := range checks() {
		f.Add(c.flags, []byte(c.answer), []byte(c.output))
	}
	f.Fuzz(func(t *testing.T, flags string, answer, output []byte) {
		o, err := Parse(strings.Fields(flags))
		if err != nil {
			if !utf8.ValidString(err.Error()) {
				t.Fatalf("unsafe error %q", err)
			}
			return
		}
		if r := o.Check(answer, answer); !r.Accepted {
			t.Fatalf("an answer does not match itself: %s", r.Message)
		}
		r := o.Check(answer, output)
		safe(t, r)
		if bytes.Equal(answer, output) && !r.Accepted {
			t.Fatal(r.Message)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	for _, c := range []struct{ name, flags, pattern, other string }{
		{"text", "", "word word\n", "WORD WORD\n"},
		{"numbers", "float_tolerance 1e-6", "3.14159265\n", "3.14159264\n"},
		{"blank", "", "\n", "\n"},
		{"one token", "", "x", "x"},
	} {
		answer := []byte(strings.Repeat(c.pattern, (8<<20)/len(c.pattern)))
		output := []byte(strings.Repeat(c.other, (8<<20)/len(c.other)))
		o := parse(b, c.flags)
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(output)))
			for b.Loop() {
				if r := o.Check(answer, output); !r.Accepted {
					b.Fatal(r.Message)
				}
			}
		})
	}
}
