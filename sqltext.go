package lastword

import (
	"iter"
	"strings"
)

// sqlPart is a stretch of SQL text: quoted (a string, a quoted identifier, a dollar-quoted body or a comment) or not.
type sqlPart struct {
	text   string
	quoted bool
}

// sqlParts cuts a text into quoted and unquoted stretches; joined, they are the text again. It knows '…', "…", `…`, $tag$…$tag$,
// -- and /* */ comments, and a backslash in a string of the form E'…'. An unclosed quote runs to the end.
func sqlParts(text string) iter.Seq[sqlPart] {
	return func(yield func(sqlPart) bool) {
		plain := 0
		for i := 0; i < len(text); {
			end := quoteEnd(text, i)
			if end == i {
				i++
				continue
			}
			if i > plain && !yield(sqlPart{text: text[plain:i]}) {
				return
			}
			if !yield(sqlPart{text: text[i:end], quoted: true}) {
				return
			}
			i, plain = end, end
		}
		if plain < len(text) {
			yield(sqlPart{text: text[plain:]})
		}
	}
}

// quoteEnd returns where the quoted stretch that begins at i ends, or i when none begins there.
func quoteEnd(text string, i int) int {
	switch c := text[i]; {
	case c == '\'' || c == '"' || c == '`':
		escapes := c == '\'' && i > 0 && (text[i-1] == 'E' || text[i-1] == 'e') && (i == 1 || !isWordByte(text[i-2]))
		return stringEnd(text, i, escapes)
	case strings.HasPrefix(text[i:], "--"):
		return endAfter(text, i+2, "\n")
	case strings.HasPrefix(text[i:], "/*"):
		return endAfter(text, i+2, "*/")
	case c == '$' && (i == 0 || !isWordByte(text[i-1])):
		tag := 1
		for i+tag < len(text) && isWordByte(text[i+tag]) {
			tag++
		}
		if i+tag < len(text) && text[i+tag] == '$' && (tag == 1 || text[i+1] < '0' || text[i+1] > '9') {
			return endAfter(text, i+tag+1, text[i:i+tag+1])
		}
	}
	return i
}

func stringEnd(text string, i int, escapes bool) int {
	quote := text[i]
	for j := i + 1; j < len(text); j++ {
		switch {
		case escapes && text[j] == '\\':
			j++
		case text[j] == quote:
			return j + 1
		}
	}
	return len(text)
}

func endAfter(text string, from int, mark string) int {
	if j := strings.Index(text[from:], mark); j >= 0 {
		return from + j + len(mark)
	}
	return len(text)
}

func isWordByte(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// sqlWords returns, for each statement in the text, its unquoted words in upper case.
func sqlWords(text string) [][]string {
	var statements [][]string
	var words []string
	for part := range sqlParts(text) {
		if part.quoted {
			continue
		}
		for i, piece := range strings.Split(strings.ToUpper(part.text), ";") {
			if i > 0 {
				statements, words = append(statements, words), nil
			}
			words = append(words, strings.FieldsFunc(piece, func(r rune) bool { return r > 127 || !isWordByte(byte(r)) })...)
		}
	}
	if len(words) > 0 || len(statements) == 0 {
		statements = append(statements, words)
	}
	return statements
}

// sqlExecutable opens MySQL's executable comments: /*!50000 COMMIT */ and MariaDB's /*M! COMMIT */ become ; COMMIT */.
func sqlExecutable(text string) (opened string, found bool) {
	for _, mark := range []string{"/*!", "/*M!"} {
		pieces := strings.Split(text, mark)
		for i := range pieces[1:] {
			pieces[i+1] = strings.TrimLeft(pieces[i+1], "0123456789")
		}
		found = found || len(pieces) > 1
		text = strings.Join(pieces, ";")
	}
	return text, found
}

// sqlMisread returns what could be a short statement such as COMMIT where an engine quotes in another way than sqlParts does:
// SQLite's [it's] and PostgreSQL's nested comments can hide one behind a quote that is none, and MySQL runs what stands in a comment
// of the form /*! */. Other texts have nothing to misread.
func sqlMisread(text string) (statements [][]string) {
	text, executable := sqlExecutable(text)
	if !executable && !strings.Contains(text, "[") && strings.Count(text, "/*") < 2 {
		return nil
	}
	var plain strings.Builder
	for part := range sqlParts(text) {
		if !part.quoted || part.text[0] != '$' { // the body of a function has an END of its own
			plain.WriteString(part.text)
		}
	}
	for piece := range strings.SplitSeq(strings.ReplaceAll(plain.String(), "*/", ";"), ";") {
		if words := strings.Fields(strings.ToUpper(strings.ReplaceAll(piece, "--", " "))); len(words) > 0 && len(words) <= 3 {
			statements = append(statements, sqlWords(strings.Trim(strings.Join(words, " "), "'\"`"))...)
		}
	}
	return statements
}
