package checker

import (
	"strconv"
	"unicode/utf8"
)

const (
	shownBefore = 8  // bytes of a token shown before its first difference
	shownBytes  = 24 // bytes of a token shown at all
	shownQuoted = 48 // bytes they may take once escaped
)

// quote shows a token around byte at: shortened, with every byte that is not
// printable escaped.
func quote(token []byte, at int) string {
	from := 0
	if at > shownBefore {
		from = min(at, len(token)) - shownBefore
		// Do not cut a character in two, which would show it as raw bytes.
		for from > 0 && from < len(token) && !utf8.RuneStart(token[from]) && at-from < 2*shownBefore {
			from--
		}
	}
	to := min(len(token), from+shownBytes)
	for to < len(token) && to > from+shownBytes-utf8.UTFMax && !utf8.RuneStart(token[to]) {
		to--
	}
	shown := strconv.Quote(string(token[from:to]))
	for len(shown) > shownQuoted {
		to--
		shown = strconv.Quote(string(token[from:to]))
	}
	if from > 0 {
		shown = "…" + shown
	}
	if to < len(token) {
		shown += "…"
	}
	return shown
}

// bound cuts a message to MaxMessage bytes at a character.
func bound(m string) string {
	if len(m) <= MaxMessage {
		return m
	}
	const mark = "…"
	cut := MaxMessage - len(mark)
	for cut > 0 && !utf8.RuneStart(m[cut]) {
		cut--
	}
	return m[:cut] + mark
}
