package server_test

import (
	"os"
	"testing"

	"github.com/lastword-go/lastword/lastwordtest/testserver"
)

// The whole story again on PostgreSQL, whose times and transactions differ.
func TestOnPostgres(t *testing.T) {
	pg, err := testserver.StartPostgres(t.Context())
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	defer pg.Close()
	for name, story := range map[string]func(*testing.T, *site){"rejudge": rejudgeAndRefusal, "events": eventsTold} {
		t.Run(name, func(t *testing.T) {
			url, drop, err := pg.NewDatabase(t.Context())
			must(t, err)
			t.Cleanup(drop)
			story(t, startOn(t, url))
		})
	}
}
