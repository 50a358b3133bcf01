package lastword

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"
)

func TestTokenRoundTrip(t *testing.T) {
	nonce := newNonce()
	for _, want := range []Token{
		{KindLease, "nightly", 1, nonce},
		{KindLease, "a/b:c.d_e-f", 7, "k3v9"},
		{KindLease, strings.Repeat("n", 120), math.MaxInt64, strings.Repeat("x", 64)},
		{KindTask, "1", 1, nonce},
		{KindTask, "9223372036854775807", 3, nonce},
	} {
		got, err := ParseToken(want.String())
		if err != nil || got != want {
			t.Errorf("ParseToken(%q) = %q, %v", want.String(), got.String(), err)
		}
	}
}

func TestParseTokenRefuses(t *testing.T) {
	secret := "SECRETNONCESECRETNONCE"
	for what, text := range map[string]string{
		"empty":                "",
		"no kind":              "nightly@1." + secret,
		"unknown kind":         "row/nightly@1." + secret,
		"no name":              "lease/@1." + secret,
		"name too long":        "lease/" + strings.Repeat("n", 121) + "@1." + secret,
		"name with a space":    "lease/a b@1." + secret,
		"name with @":          "lease/a@b@1." + secret,
		"no epoch":             "lease/nightly@." + secret,
		"epoch zero":           "lease/nightly@0." + secret,
		"epoch negative":       "lease/nightly@-1." + secret,
		"epoch out of range":   "lease/nightly@9223372036854775808." + secret,
		"epoch not a number":   "lease/nightly@x." + secret,
		"no nonce":             "lease/nightly@1.",
		"no dot":               "lease/nightly@1",
		"nonce too long":       "lease/nightly@1." + strings.Repeat("x", 65),
		"nonce with a space":   "lease/nightly@1.a b",
		"nonce with a newline": "lease/nightly@1." + secret + "\n",
		"task is no number":    "task/nightly@1." + secret,
		"task zero":            "task/0@1." + secret,
		"task negative":        "task/-1@1." + secret,
		"task with a zero":     "task/01@1." + secret,
		"task out of range":    "task/9223372036854775808@1." + secret,
	} {
		_, err := ParseToken(text)
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: ParseToken(%q) = %v, want ErrInvalid", what, text, err)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error repeats the nonce: %v", what, err)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	for _, seed := range []string{"lease/nightly@7.k3v9", "task/12@1.abc", "lease/a/b@1.x", "lease/@.", "/@.", "task/1@01.x", "lease/a@+1.x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseToken(text)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%q: %v is not ErrInvalid", text, err)
			}
			return
		}
		again, err := ParseToken(token.String())
		if err != nil || again != token {
			t.Fatalf("%q: read as %q, which reads as %q, %v", text, token.String(), again.String(), err)
		}
		if token.String() != text {
			t.Fatalf("two texts name one token: %q and %q", text, token.String())
		}
	})
}

// What ends up in logs, error messages and JSON must not carry the power to write.
func TestNonceIsNeverWhole(t *testing.T) {
	nonce := newNonce()
	token := Token{KindLease, "nightly", 7, nonce}
	task := Token{KindTask, "12", 7, nonce}
	refused := &RefusedError{Token: token, Operation: "renew", Outcome: ErrFenced, Reason: "because"}
	lease := &Lease{store: &Store{}, token: token, ttl: time.Second}
	attempt := &Attempt{store: &Store{}, id: 12, generation: 7, nonce: nonce}
	values := map[string]any{
		"token": token, "*token": &token, "task": task, "refused": refused, "refused value": *refused, "lease": lease, "attempt": attempt,
		"slice": []Token{token}, "map": map[string]Token{"a": token}, "key": map[Token]int{token: 1}, "struct": struct{ T Token }{token}, "any": []any{token, lease},
		"wrapped": fmt.Errorf("x: %w", refused), "lease in a struct": struct{ L *Lease }{lease},
	}
	for what, value := range values {
		for _, verb := range []string{"%v", "%s", "%+v", "%#v", "%q", "%d", "%x", "%T %[1]v"} {
			refuseNonce(t, what+" "+verb, fmt.Sprintf(verb, value), nonce)
		}
		refuseNonce(t, what+" Sprint", fmt.Sprint(value), nonce)
		for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
			"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
			"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		} {
			var out bytes.Buffer
			slog.New(handler(&out)).Info("x", "value", value, slog.Group("g", "v", value))
			refuseNonce(t, what+" slog "+name, out.String(), nonce)
		}
		if out, err := json.Marshal(value); err == nil {
			refuseNonce(t, what+" json", string(out), nonce)
		}
	}
	if short := token.Short(); !strings.Contains(short, nonce[:6]) || strings.Contains(short, nonce[:7]) {
		t.Errorf("Short() = %q, want six characters of %q", short, nonce)
	}
	refuseNonce(t, "error", refused.Error(), nonce)
}

// refuseNonce also finds a nonce that was printed in hexadecimal.
func refuseNonce(t *testing.T, what, text, nonce string) {
	t.Helper()
	for _, part := range []string{nonce[:7], fmt.Sprintf("%x", nonce[:7]), fmt.Sprintf("%X", nonce[:7])} {
		if strings.Contains(text, part) {
			t.Errorf("%s shows more than six characters of the nonce: %s", what, text)
			return
		}
	}
}

func TestTokenJSONIsJSON(t *testing.T) {
	for _, name := range []string{"nightly", "\x01", "\"", "\xff", "…"} {
		out, err := json.Marshal(Token{KindLease, name, 1, "abcdefghij"})
		if err != nil || !json.Valid(out) {
			t.Errorf("name %q: %s, %v", name, out, err)
		}
	}
}

func TestNoncesAreLongAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		nonce := newNonce()
		if len(nonce) < 26 || len(nonce) > 64 || seen[nonce] {
			t.Fatalf("nonce %q: 26 base32 characters hold 128 bits, and none comes twice", nonce)
		}
		seen[nonce] = true
	}
}

func TestValidateTTL(t *testing.T) {
	for ttl, good := range map[time.Duration]bool{
		0: false, -time.Second: false, time.Second - 1: false, time.Second: true, 24 * time.Hour: true, 24*time.Hour + 1: false,
	} {
		if err := validateTTL("TTL", ttl); (err == nil) != good || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("TTL %v: %v", ttl, err)
		}
	}
}
