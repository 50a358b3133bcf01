package problem

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	// maxBytes refuses a size that is surely a slip (bytes written for MiB) and
	// keeps the product inside an int64.
	maxBytes = 1 << 40
	// maxTime refuses a limit in milliseconds and one that would block a worker.
	maxTime = 10 * time.Minute
	// minTime refuses what would round down to no time at all.
	minTime = time.Millisecond
)

func defaultLimits() Limits {
	return Limits{
		Time:   10 * time.Second,
		Memory: 2048 * mib, Output: 8 * mib, Code: 128 * kib,
		CompileTime: 60 * time.Second, CompileMemory: 2048 * mib,
		ValidationTime: 60 * time.Second, ValidationMemory: 2048 * mib, ValidationOutput: 8 * mib,
	}
}

func (l *loader) readLimits(t table) {
	lim := &l.pkg.Limits
	_, l.stated = t.at("time_limit")
	l.duration(t, "time_limit", &lim.Time)
	l.duration(t, "compilation_time", &lim.CompileTime)
	l.duration(t, "validation_time", &lim.ValidationTime)
	l.size(t, "memory", mib, &lim.Memory)
	l.size(t, "output", mib, &lim.Output)
	l.size(t, "code", kib, &lim.Code)
	l.size(t, "compilation_memory", mib, &lim.CompileMemory)
	l.size(t, "validation_memory", mib, &lim.ValidationMemory)
	l.size(t, "validation_output", mib, &lim.ValidationOutput)
	if l.legacy() {
		l.margin(t, "limits.time_multiplier", &lim.AcceptedMargin)
		l.margin(t, "limits.time_safety_margin", &lim.TooSlowMargin)
		return
	}
	m := l.sub(settingsFile, t, "time_multipliers")
	l.margin(m, "limits.time_multipliers.ac_to_time_limit", &lim.AcceptedMargin)
	l.margin(m, "limits.time_multipliers.time_limit_to_tle", &lim.TooSlowMargin)
}

// number reads a key of a map as a number. What is not one is reported.
func (l *loader) number(t table, key, name, mend string) (v float64, ok bool) {
	node, ok := t.at(key)
	if !ok {
		return 0, false
	}
	if err := node.Decode(&v); err != nil || math.IsNaN(v) {
		_, isText := scalar(&node)
		what := name + " is not a number"
		if isText {
			what = fmt.Sprintf("%s is %q", name, node.Value)
		}
		l.fail(settingsFile, node.Line, what, mend)
		return 0, false
	}
	return v, true
}

func (l *loader) duration(t table, key string, into *time.Duration) {
	name := "limits." + key
	const mend = "write a number of seconds above 0 and up to 600"
	v, ok := l.number(t, key, name, mend)
	if !ok {
		return
	}
	if d, ok := seconds(v); ok {
		*into = d
		return
	}
	l.fail(settingsFile, t[key].Line, fmt.Sprintf("%s is %v s", name, v), mend)
}

// seconds refuses what is no sensible limit. It compares before it converts:
// a float beyond the range of an int64 has no defined conversion.
func seconds(v float64) (time.Duration, bool) {
	if !(v >= minTime.Seconds() && v <= maxTime.Seconds()) {
		return 0, false
	}
	return time.Duration(math.Round(v * float64(time.Second))), true
}

func (l *loader) size(t table, key string, unit int64, into *int64) {
	name, word := "limits."+key, "MiB"
	if unit == kib {
		word = "KiB"
	}
	mend := fmt.Sprintf("write a number of %s above 0 and up to %d", word, maxBytes/unit)
	v, ok := l.number(t, key, name, mend)
	if !ok {
		return
	}
	if bytes := v * float64(unit); bytes >= 1 && bytes <= maxBytes {
		*into = int64(bytes)
		return
	}
	l.fail(settingsFile, t[key].Line, fmt.Sprintf("%s is %v %s", name, v, word), mend)
}

// margin reads a factor; the name's last part is the key.
func (l *loader) margin(t table, name string, into *float64) {
	key := name[strings.LastIndexByte(name, '.')+1:]
	const mend = "write a number >= 1"
	v, ok := l.number(t, key, name, mend)
	if !ok {
		return
	}
	if v < 1 || math.IsInf(v, 0) {
		l.fail(settingsFile, t[key].Line, fmt.Sprintf("%s is %v", name, v), mend)
		return
	}
	*into = v
}

// readTimeFile reads the time limit as the tools for the legacy format keep it.
func (l *loader) readTimeFile() {
	lim := &l.pkg.Limits
	lim.TimeStated = l.stated
	content, ok := l.readFile(timeFile, kib)
	if !ok {
		if !l.stated && !l.bad[timeFile] {
			l.warn(settingsFile, fmt.Sprintf("has no limits.time_limit and there is no %s; %v is taken", timeFile, lim.Time))
		}
		return
	}
	const mend = "write a number of seconds above 0 and up to 600"
	text := strings.TrimSpace(strings.TrimPrefix(string(content), mark))
	v, err := strconv.ParseFloat(text, 64)
	d, ok := seconds(v)
	switch {
	case err != nil || !ok:
		l.fail(timeFile, 0, fmt.Sprintf("the time limit is %.40q", text), mend)
	case l.stated && d != lim.Time:
		l.fail(timeFile, 0, fmt.Sprintf("says %v, but problem.yaml says %v", d, lim.Time), "keep one of the two")
	default:
		lim.Time, lim.TimeStated = d, true
	}
}
