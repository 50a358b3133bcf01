package sandbox

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	Main()
	if role := os.Getenv("SANDBOX_TEST_ROLE"); role != "" {
		os.Exit(play(role))
	}
	os.Exit(m.Run())
}
