package lastword

import (
	"context"
	"fmt"
)

// Revoke takes a lease away from whoever holds it and returns the fence that is in force now: whatever the holder still writes under its
// token is refused. It waits for guarded transactions that are already open. The lease is free afterwards; a name that was never
// acquired is [ErrNotFound]. Revoking again raises the fence again.
func (s *Store) Revoke(ctx context.Context, name string) (fence int64, err error) {
	if err := validateName(name); err != nil {
		return 0, err
	}
	var ended int64
	err = s.autocommit(ctx, s.db, "LeaseEnd", "revoke "+name, func(q querier) error {
		_, err := s.one(ctx, q, "LeaseEnd", Args{"name": name}, &ended)
		return err
	})
	if err != nil {
		return 0, err
	}
	err = s.autocommit(ctx, s.db, "LeaseRevoke", "revoke "+name, func(q querier) error {
		found, err := s.one(ctx, q, "LeaseRevoke", Args{"name": name}, &fence)
		if err == nil && !found {
			return fmt.Errorf("lastword: lease %q: %w", name, ErrNotFound)
		}
		return err
	})
	if err == nil {
		s.turns.release(name)
	}
	return fence, err
}
