package mysql_test

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/mysql"
)

// MySQLError has the shape of the driver's error; the adapter module tries the driver's own.
type MySQLError struct {
	Number   uint16
	SQLState [5]byte
	Message  string
}

func (e *MySQLError) Error() string { return fmt.Sprintf("Error %d (%s)", e.Number, e.SQLState[:]) }

func answer(number uint16, state string) error {
	e := &MySQLError{Number: number}
	copy(e.SQLState[:], state)
	return e
}

// texted says by its text what it is not.
type texted struct{ Number string }

func (e texted) Error() string { return "Error 1213 (40001): Deadlock found" }

func TestClassify(t *testing.T) {
	var none *MySQLError
	for _, c := range []struct {
		err  error
		want lastword.ErrorClass
	}{
		{answer(1205, "HY000"), lastword.Contended},
		{answer(1213, "40001"), lastword.Contended},
		{answer(1020, "HY000"), lastword.Contended},
		{answer(3572, "HY000"), lastword.Contended},
		{answer(3101, "40000"), lastword.Contended},
		{answer(1213, ""), lastword.Contended}, // a server too old for SQLSTATE
		{answer(1644, "45LW1"), lastword.Fenced},
		{answer(1644, "45LW2"), lastword.Answered},
		{answer(1062, "23000"), lastword.Answered},
		{answer(1064, "42000"), lastword.Answered},
		{answer(1053, "08S01"), lastword.Unanswered},
		{answer(1317, "70100"), lastword.Unanswered},
		{answer(1180, "HY000"), lastword.Unanswered},
		{answer(2006, "HY000"), lastword.Unanswered},
		{answer(2013, "HY000"), lastword.Unanswered},
		{fmt.Errorf("submit: %w", answer(1213, "40001")), lastword.Contended},
		{fmt.Errorf("%w: %w", io.EOF, fmt.Errorf("x: %w", answer(1213, "40001"))), lastword.Contended},
		{errors.Join(io.EOF, answer(1062, "23000")), lastword.Answered},
		{driver.ErrBadConn, lastword.Unanswered},
		{errors.New("invalid connection"), lastword.Unanswered},
		{errors.New("Error 1213 (40001): Deadlock found"), lastword.Unanswered}, // its text is no answer of a server
		{texted{}, lastword.Unanswered},
		{none, lastword.Unanswered},
		{nil, lastword.Unanswered},
	} {
		if got := mysql.Dialect().Classify(c.err); got != c.want {
			t.Errorf("%#v is %v, want %v", c.err, got, c.want)
		}
	}
}
