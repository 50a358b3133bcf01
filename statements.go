package lastword

import (
	"fmt"
	"strings"
)

// Args are the values of a statement's named parameters.
type Args map[string]any

// Statements are the named sections of a file of SQL, ready for one engine. The same reader serves the library's own files
// and those of a program that keeps several engines side by side.
type Statements map[string]Statement

// Statement is one section: its text with the engine's placeholders, and the names that fill them, in order.
type Statement struct {
	Text   string
	Params []string
	// Then runs next in the same transaction, on engines that need several statements where others need one. Each SELECT of a section
	// has the same columns; one that finds no row ends the section, and the last one's rows are its result.
	Then *Statement
}

// Empty reports whether the engine does without this section.
func (s Statement) Empty() bool { return s.Text == "" }

// Bind returns the values in the order of the placeholders. It panics when a name is missing: that is a fault in the program,
// not in its input.
func (s Statement) Bind(args Args) []any {
	values := make([]any, len(s.Params))
	for i, name := range s.Params {
		v, ok := args[name]
		if !ok {
			panic(fmt.Sprintf("lastword: statement parameter @%s has no value", name))
		}
		values[i] = v
	}
	return values
}

// ParseStatements reads sections that begin with a line "-- name: NAME". In them @param becomes a placeholder, {word} what a
// line "-- define: word = text" says (the text may use the words before it), and other comments on lines of their own are dropped; "@@" and an @ before anything but a
// small letter, a digit or _ stay. A line "-- then" begins the next statement of the same section. prefix replaces "lastword_" in
// every identifier; "" keeps it. It returns an error for a section named twice or a text outside of any section.
func ParseStatements(text, prefix string, placeholder func(n int) string) (Statements, error) {
	defines := map[string]string{}
	bodies := map[string]*strings.Builder{}
	var current *strings.Builder
	for line := range strings.Lines(text) {
		comment, isComment := strings.CutPrefix(strings.TrimSpace(line), "-- ")
		switch word, rest, _ := strings.Cut(comment, ": "); {
		case isComment && word == "name":
			name := strings.TrimSpace(rest)
			if bodies[name] != nil {
				return nil, fmt.Errorf("lastword: section %q stands twice", name)
			}
			current = &strings.Builder{}
			bodies[name] = current
		case isComment && word == "define":
			name, value, _ := strings.Cut(rest, " = ")
			defines["{"+strings.TrimSpace(name)+"}"] = expand(strings.TrimSpace(value), defines)
		case isComment && comment == "then" && current != nil:
			current.WriteString(nextStatement)
		case isComment || strings.TrimSpace(line) == "" || strings.TrimSpace(line) == "--":
		case current == nil:
			return nil, fmt.Errorf("lastword: %q stands outside of any section", strings.TrimSpace(line))
		default:
			current.WriteString(line)
		}
	}
	out := make(Statements, len(bodies))
	for name, body := range bodies {
		sql := expand(strings.TrimSpace(body.String()), defines)
		out[name] = *parseSteps(strings.Split(withPrefix(sql, prefix), nextStatement), placeholder)
	}
	return out, nil
}

func expand(sql string, defines map[string]string) string {
	for word, value := range defines {
		sql = strings.ReplaceAll(sql, word, value)
	}
	return sql
}

const nextStatement = "\x00" // SQL has none

func parseSteps(steps []string, placeholder func(int) string) *Statement {
	first := parseParams(strings.TrimSpace(steps[0]), placeholder)
	if len(steps) > 1 {
		first.Then = parseSteps(steps[1:], placeholder)
	}
	return &first
}

func (s Statement) last() Statement {
	for s.Then != nil {
		s = *s.Then
	}
	return s
}

func (s Statement) isSelect() bool { return strings.HasPrefix(s.Text, "SELECT") }

// withPrefix renames the library's tables, indexes and functions.
func withPrefix(sql, prefix string) string {
	if prefix == "" || prefix == defaultPrefix {
		return sql
	}
	if strings.HasSuffix(prefix, ".") {
		// The names of indexes and constraints take no schema: they stand in that of their table.
		return strings.NewReplacer("INDEX "+defaultPrefix, "INDEX ", "CONSTRAINT "+defaultPrefix, "CONSTRAINT ", defaultPrefix, prefix).Replace(sql)
	}
	return strings.ReplaceAll(sql, defaultPrefix, prefix)
}

func parseParams(sql string, placeholder func(int) string) Statement {
	var s Statement
	var text strings.Builder
	for part := range sqlParts(sql) {
		if part.quoted {
			text.WriteString(part.text)
			continue
		}
		rest := part.text
		for {
			before, after, found := strings.Cut(rest, "@")
			text.WriteString(before)
			if !found {
				break
			}
			name := leadingIdentifier(after)
			if name == "" || strings.HasSuffix(text.String(), "@") { // an operator (@>, @@) or a variable (@@name) of the engine
				text.WriteByte('@')
				rest = after
				continue
			}
			s.Params = append(s.Params, name)
			text.WriteString(placeholder(len(s.Params)))
			rest = after[len(name):]
		}
	}
	s.Text = text.String()
	return s
}

func leadingIdentifier(s string) string {
	for i := range len(s) {
		if c := s[i]; c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return s[:i]
		}
	}
	return s
}
