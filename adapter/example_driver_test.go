package adapter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lastword-go/lastword"
)

// A package that guards transactions of a driver's own interface (see adapter/pgx) sends the guard itself, and leaves texts and verdicts to
// the Store.
func Example_driverInterface() {
	ctx := context.Background()
	store, db, remove := openExample()
	defer remove()
	lease := must(store.Acquire(ctx, "nightly", lastword.LeaseOptions{TTL: time.Minute}))

	fmt.Println(store.Admit("UPDATE payroll SET total = 1") == nil)
	fmt.Println(errors.Is(store.Admit("UPDATE payroll SET total = 1; COMMIT"), lastword.ErrInvalid))
	_, err := store.GuardedWrite("UPDATE payroll SET total = ?", 1)
	fmt.Println(errors.Is(err, lastword.ErrInvalid)) // not one statement on SQLite

	fmt.Println(store.Refuse(ctx, lease.Token(), "guard")) // in force after all
	must(db.ExecContext(ctx, "UPDATE lastword_leases SET fence = fence + 1, owner = 'another'"))
	fmt.Println(errors.Is(store.Refuse(ctx, lease.Token(), "guard"), lastword.ErrFenced))
	// Output:
	// true
	// true
	// true
	// <nil>
	// true
}
