package adapter

import "testing"

// TestEngines fails in CI when an engine is missing; TestMain has printed which ones there are.
func TestEngines(t *testing.T) {
	t.Run("postgres", func(t *testing.T) { newPostgres(t) })
	t.Run("mysql", func(t *testing.T) { newMySQL(t) })
}
