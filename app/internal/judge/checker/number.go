package checker

import "strconv"

// parseNumber reads a decimal number in the format's grammar:
//
//	sign? ( digit* "." digit+ | digit+ "." | digit+ ) ( [eE] sign? digit+ )?
//
// strconv alone would also take inf, nan, hexadecimal and underscores. A number
// beyond the range of a float64 (1e400) is refused, so it is compared as text:
// its distance to anything cannot be told.
func parseNumber(s []byte) (float64, bool) {
	i, n := 0, len(s)
	if i < n && isSign(s[i]) {
		i++
	}
	whole := digits(s[i:])
	i += whole
	fraction := 0
	if i < n && s[i] == '.' {
		i++
		fraction = digits(s[i:])
		i += fraction
	}
	if whole+fraction == 0 {
		return 0, false
	}
	if i < n && (s[i] == 'e' || s[i] == 'E') {
		i++
		if i < n && isSign(s[i]) {
			i++
		}
		exponent := digits(s[i:])
		if exponent == 0 {
			return 0, false
		}
		i += exponent
	}
	if i != n {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(s), 64)
	return v, err == nil
}

func isSign(b byte) bool { return b == '+' || b == '-' }

// digits counts the decimal digits s begins with.
func digits(s []byte) int {
	i := 0
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	return i
}
