package lastword

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// Kind says which right a token names.
type Kind string

// The two rights: a lease on a singleton job, and one execution of a task.
const (
	KindLease Kind = "lease"
	KindTask  Kind = "task"
)

// Token names one grant of one right. Two grants never share a token: Epoch (a lease's fence, a task's generation) never
// falls, and Nonce (a lease's owner, a task's attempt id) is random. Compare both, always: after a lost commit an epoch can be
// minted twice, and two attempts share a generation.
//
// The nonce is a bearer secret. [Token.String] gives the whole token, for handing it to a child process or to SQL; fmt and slog
// show at most six characters of the nonce.
type Token struct {
	Kind  Kind
	Name  string // the lease's name, or the task's id in decimal
	Epoch int64  // 1 or more
	Nonce string
}

// String returns the token as text: "lease/nightly@7.k3v9…", with the whole nonce. [ParseToken] reads it back.
func (t Token) String() string {
	return fmt.Sprintf("%s/%s@%d.%s", string(t.Kind), t.Name, t.Epoch, t.Nonce)
}

// Short returns the token with six characters of the nonce, for people.
func (t Token) Short() string {
	return fmt.Sprintf("%s/%s@%d.%s…", string(t.Kind), t.Name, t.Epoch, nonceStart(t.Nonce))
}

// Format keeps the nonce out of everything printed with fmt: each verb prints [Token.Short].
func (t Token) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(t.Short())) }

// LogValue keeps the nonce out of logs.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.Short()) }

// MarshalJSON keeps the nonce out of JSON: it writes [Token.Short]. Send [Token.String] where the bearer is meant to use it.
func (t Token) MarshalJSON() ([]byte, error) { return json.Marshal(t.Short()) }

// ParseToken reads the text of [Token.String]. Anything else is an error that matches [ErrInvalid]; the text is not repeated in it.
func ParseToken(text string) (Token, error) {
	kind, rest, _ := strings.Cut(text, "/")
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return Token{}, invalidf("token has no @: it reads kind/name@epoch.nonce")
	}
	epochText, nonce, _ := strings.Cut(rest[at+1:], ".")
	epoch, err := strconv.ParseInt(epochText, 10, 64)
	if err != nil || strconv.FormatInt(epoch, 10) != epochText {
		return Token{}, invalidf("token's epoch is not a decimal number")
	}
	t := Token{Kind: Kind(kind), Name: rest[:at], Epoch: epoch, Nonce: nonce}
	if err := t.validate(); err != nil {
		return Token{}, err
	}
	return t, nil
}

func (t Token) validate() error {
	switch t.Kind {
	case KindLease:
		if err := validateName(t.Name); err != nil {
			return err
		}
	case KindTask:
		if _, err := t.taskID(); err != nil {
			return err
		}
	default:
		return invalidf("token kind %q is neither %q nor %q", string(t.Kind), string(KindLease), string(KindTask))
	}
	if t.Epoch < 1 {
		return invalidf("token epoch %d is below 1", t.Epoch)
	}
	if t.Nonce == "" || len(t.Nonce) > 64 || strings.ContainsAny(t.Nonce, "@/ \n") {
		return invalidf("token nonce is empty, too long or has a character that no nonce has")
	}
	return nil
}

func (t Token) taskID() (int64, error) {
	id, err := strconv.ParseInt(t.Name, 10, 64)
	if err != nil || id < 1 || strconv.FormatInt(id, 10) != t.Name {
		return 0, invalidf("task id %q is not a positive decimal number", t.Name)
	}
	return id, nil
}

// newNonce returns 26 characters with at least 128 random bits.
func newNonce() string { return rand.Text() }

func nonceStart(nonce string) string { return nonce[:min(6, len(nonce))] }

const (
	maxNameLength = 120
	minTTL        = time.Second
	maxTTL        = 24 * time.Hour
)

// validateName keeps names to 1–120 characters that need no quoting anywhere: in a URL path, a shell, a metric label.
func validateName(name string) error {
	if name == "" || len(name) > maxNameLength {
		return invalidf("name has %d characters: 1 to %d are allowed", len(name), maxNameLength)
	}
	for _, c := range []byte(name) {
		if !isWordByte(c) && !strings.ContainsRune(":./-", rune(c)) {
			return invalidf("name %q has the character %q: letters, digits and _ : . / - are allowed", name, c)
		}
	}
	return nil
}

func validateTTL(what string, ttl time.Duration) error {
	if ttl < minTTL || ttl > maxTTL {
		return invalidf("%s is %v: %v to %v are allowed", what, ttl, minTTL, maxTTL)
	}
	return nil
}
