package problem

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	settingsFile = "problem.yaml"
	timeFile     = ".timelimit"
	// maxSettings bounds a YAML file. Real ones take a few hundred bytes.
	maxSettings = 256 << 10
)

// table is a YAML map whose values are read one key at a time, so that one bad
// value does not hide the next and each is reported with its line.
type table map[string]yaml.Node

// readTable reads a YAML file; ok is false when it is not there or was reported.
func (l *loader) readTable(file string) (t table, ok bool) {
	content, ok := l.readFile(file, maxSettings)
	if !ok {
		return nil, false
	}
	if err := yaml.Unmarshal(content, &t); err != nil {
		line, what := yamlFault(err)
		l.bad[file] = true
		l.fail(file, line, "is not a YAML map: "+what, "correct the YAML")
		return nil, false
	}
	return t, true
}

// yamlFault takes the first line number out of a YAML error's text: the library
// has no other place for it.
func yamlFault(err error) (line int, what string) {
	what = strings.TrimPrefix(err.Error(), "yaml: ")
	what = strings.Join(strings.Fields(strings.TrimPrefix(what, "unmarshal errors:")), " ")
	m := regexp.MustCompile(`^line (\d+): (.*)$`).FindStringSubmatch(what)
	if m == nil {
		return 0, what
	}
	line, _ = strconv.Atoi(m[1]) // out of range leaves the largest int, which is as good
	return line, m[2]
}

// at gives a key's value. A null is as good as no key.
func (t table) at(key string) (node yaml.Node, ok bool) {
	node, ok = t[key]
	return node, ok && node.Tag != "!!null"
}

// text reads a scalar as it is written.
func (l *loader) text(file string, t table, key string) string {
	node, ok := t.at(key)
	if !ok {
		return ""
	}
	if s, ok := scalar(&node); ok {
		return s
	}
	l.fail(file, node.Line, key+" is not a text", "write it as one text")
	return ""
}

// texts reads one text or a list of texts.
func (l *loader) texts(file string, t table, key string) []string {
	node, ok := t.at(key)
	if !ok {
		return nil
	}
	if s, ok := scalar(&node); ok {
		return []string{s}
	}
	var list []yaml.Node
	if err := node.Decode(&list); err == nil {
		var all []string
		for i := range list {
			s, ok := scalar(&list[i])
			if !ok {
				break
			}
			all = append(all, s)
		}
		if len(all) == len(list) {
			return all
		}
	}
	l.fail(file, node.Line, key+" is neither a text nor a list of texts", "write one of the two")
	return nil
}

func scalar(node *yaml.Node) (string, bool) {
	if node.Kind == yaml.AliasNode && node.Alias != nil {
		node = node.Alias
	}
	return node.Value, node.Kind == yaml.ScalarNode && node.Tag != "!!null"
}

// sub reads a map inside a map.
func (l *loader) sub(file string, t table, key string) table {
	node, ok := t.at(key)
	if !ok {
		return nil
	}
	var inner table
	if err := node.Decode(&inner); err != nil {
		_, what := yamlFault(err)
		l.fail(file, node.Line, key+" is not a map: "+what, "write one key and value a line below "+key)
	}
	return inner
}

func (l *loader) readSettings() {
	l.pkg.Format, l.pkg.License, l.pkg.Name = "legacy", "unknown", l.pkg.ID
	l.pkg.Limits = defaultLimits()
	t, ok := l.readTable(settingsFile)
	if !ok {
		if !l.bad[settingsFile] {
			l.fail(settingsFile, 0, "is missing", "write it, or give the path of a problem package")
		}
		return
	}
	l.readFormat(t)
	l.readKind(t)
	l.readNames(t)
	l.readCredits(t)
	if license := l.text(settingsFile, t, "license"); license != "" {
		l.pkg.License = license
	}
	l.pkg.UUID = l.text(settingsFile, t, "uuid")
	for _, code := range l.texts(settingsFile, t, "languages") {
		// The first draft separated the codes with spaces.
		l.pkg.Languages = append(l.pkg.Languages, strings.Fields(code)...)
	}
	if slices.Equal(l.pkg.Languages, []string{"all"}) {
		l.pkg.Languages = nil
	}
	if node, ok := t.at("validator_flags"); ok {
		l.flagsAt = node.Line
		for _, s := range l.texts(settingsFile, t, "validator_flags") {
			l.flags = append(l.flags, strings.Fields(s)...)
		}
	}
	l.readLimits(l.sub(settingsFile, t, "limits"))
	l.readTimeFile()
}

func (l *loader) readFormat(t table) {
	const key = "problem_format_version"
	format := l.text(settingsFile, t, key)
	switch format {
	case "":
	case "legacy", "legacy-icpc", "2023-07-draft", "2023-07", "2025-09-draft", "2025-09", "draft":
		l.pkg.Format = format
	default:
		l.unsupported(t, key, fmt.Sprintf("%s %q", key, format), "use legacy or 2023-07")
	}
}

// readKind refuses what would be judged wrongly if it were taken for a
// pass-fail problem with the default validator.
func (l *loader) readKind(t table) {
	for _, kind := range l.texts(settingsFile, t, "type") {
		if kind != "pass-fail" {
			l.unsupported(t, "type", fmt.Sprintf("type %q", kind), "use a pass-fail problem")
		}
	}
	if v := l.text(settingsFile, t, "validation"); v != "" && v != "default" {
		l.unsupported(t, "validation", fmt.Sprintf("validation %q", v), "use validation: default with validator_flags")
	}
	if len(l.sub(settingsFile, t, "constants")) > 0 {
		l.unsupported(t, "constants", "constants", "write their values where they are used")
	}
	dirs := []string{"include", "static_validator"}
	if !l.legacy() {
		// Before 2023-07 it is the key that chooses the validator.
		dirs = append(dirs, "output_validator", "output_validators")
	}
	for _, dir := range dirs {
		if slices.ContainsFunc(l.files, func(f string) bool { return strings.HasPrefix(f, dir+"/") }) {
			l.fail(dir, 0, "is not yet supported", "use a problem without it")
		}
	}
}

func (l *loader) unsupported(t table, key, what, mend string) {
	l.fail(settingsFile, t[key].Line, what+" is not yet supported", mend)
}

func (l *loader) readNames(t table) {
	node, ok := t.at("name")
	if !ok {
		l.warn(settingsFile, "has no name; the folder's name is shown")
		return
	}
	if s, ok := scalar(&node); ok {
		l.pkg.Name, l.pkg.Names = s, map[string]string{"en": s}
		return
	}
	if err := node.Decode(&l.pkg.Names); err != nil || len(l.pkg.Names) == 0 {
		l.fail(settingsFile, node.Line, "name is neither a text nor a map of languages to texts", "write name: Some Name")
		return
	}
	best := ""
	for code := range l.pkg.Names {
		if best == "" || code == "en" || best != "en" && code < best {
			best = code
		}
	}
	l.pkg.Name = l.pkg.Names[best]
}

// readCredits takes what an index of problems shows. None of it bears on a
// verdict, so a shape that is not known is passed over.
func (l *loader) readCredits(t table) {
	l.pkg.RightsOwner = l.text(settingsFile, t, "rights_owner")
	switch credits, _ := t.at("credits"); {
	case credits.Kind == yaml.ScalarNode:
		l.pkg.Authors = []string{credits.Value}
	case credits.Kind != 0:
		l.pkg.Authors = l.texts(settingsFile, l.sub(settingsFile, t, "credits"), "authors")
	default:
		names := strings.NewReplacer(" and ", ",").Replace(l.text(settingsFile, t, "author"))
		for name := range strings.SplitSeq(names, ",") {
			if name = strings.TrimSpace(name); name != "" {
				l.pkg.Authors = append(l.pkg.Authors, name)
			}
		}
	}
	if source, _ := t.at("source"); source.Kind == yaml.ScalarNode {
		l.pkg.Source = source.Value
	}
}
