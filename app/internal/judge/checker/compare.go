package checker

import (
	"bytes"
	"fmt"
)

// comparison walks answer and output in step. Its methods return the message of
// the first difference, or "".
type comparison struct {
	o      *Options
	answer *scanner
	output *scanner
	token  int // number of the token at hand or next, from 1
}

func (c *comparison) run() string {
	for {
		c.token++
		if m := c.space(); m != "" {
			return m
		}
		line, col := c.output.line, c.output.col
		want, wantMore := c.answer.chunk()
		got, gotMore := c.output.chunk()
		if len(want) == 0 && len(got) == 0 {
			return ""
		}
		if m := c.pair(want, got, wantMore, gotMore, line, col); m != "" {
			return m
		}
	}
}

// pair compares one token of each side; either may be absent.
func (c *comparison) pair(want, got []byte, wantMore, gotMore bool, line, col int) string {
	switch {
	case len(want) == 0:
		return c.differ(line, col, "expected the end of the output", "got "+quote(got, 0))
	case len(got) == 0:
		return c.differ(line, col, "expected "+quote(want, 0), "got the end of the output")
	}
	if !wantMore && !gotMore && bytes.Equal(want, got) {
		return "" // equal under every option; spares the parsing of most numbers
	}
	if c.o.numeric() && !wantMore {
		if w, ok := parseNumber(want); ok {
			return c.number(want, got, w, gotMore, line, col)
		}
	}
	for {
		if at := c.firstDifference(want, got); at >= 0 {
			return c.differ(line, col+at, "expected "+quote(want, at), "got "+quote(got, at))
		}
		if !wantMore && !gotMore {
			return ""
		}
		// Both chunks were equally long, so both sides have read the same
		// number of bytes of a token too long to be held.
		line, col = c.output.line, c.output.col
		want, wantMore = c.answer.chunk()
		got, gotMore = c.output.chunk()
	}
}

func (c *comparison) number(want, got []byte, w float64, gotMore bool, line, col int) string {
	g, ok := parseNumber(got)
	if !ok || gotMore {
		return c.differ(line, col, "expected the number "+quote(want, 0), "got "+quote(got, 0))
	}
	if !c.o.close(w, g) {
		return c.differ(line, col, "expected "+quote(want, 0)+" within the tolerance", "got "+quote(got, 0))
	}
	return ""
}

// firstDifference gives the index of the first byte that differs, or -1. When
// one is a prefix of the other, that is the shorter one's length.
func (c *comparison) firstDifference(want, got []byte) int {
	n := min(len(want), len(got))
	for i := range n {
		if want[i] != got[i] && (c.o.caseSensitive || lower(want[i]) != lower(got[i])) {
			return i
		}
	}
	if len(want) != len(got) {
		return n
	}
	return -1
}

// lower folds A-Z only: the format's validator compares in the C locale, and
// folding more would make the verdict depend on a Unicode version.
func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

// space passes over the white space before the next token.
func (c *comparison) space() string {
	if !c.o.spaceSensitive {
		c.answer.skipSpace()
		c.output.skipSpace()
		return ""
	}
	for {
		want, wantOK := c.answer.peekSpace()
		got, gotOK := c.output.peekSpace()
		line, col := c.output.line, c.output.col
		switch {
		case !wantOK && !gotOK:
			return ""
		case wantOK && gotOK && want == got:
			c.answer.nextSpace()
			c.output.nextSpace()
		case !wantOK && got == '\n' && c.answer.unterminated():
			c.output.nextSpace()
			if c.output.atEnd() {
				return ""
			}
			return c.differ(line, col, "expected the end of the output", "got more after a line end")
		default:
			return c.differ(line, col, "expected "+c.answer.describe(), "got "+c.output.describe())
		}
	}
}

func (c *comparison) differ(line, col int, expected, got string) string {
	return bound(fmt.Sprintf("line %d, column %d, token %d: %s, %s", line, col, c.token, expected, got))
}
