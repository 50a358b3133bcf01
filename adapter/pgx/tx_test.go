package pgxlastword_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lastword-go/lastword"
	pgxlastword "github.com/lastword-go/lastword/adapter/pgx"
)

func txOn(w *world, db pgxlastword.DB, token lastword.Token, opts pgx.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return pgxlastword.Tx(w.ctx, w.store, db, token, opts, fn)
}

// ways are the three ways to write, each in one transaction of its own.
var ways = map[string]func(w *world, token lastword.Token) error{
	"Tx": func(w *world, token lastword.Token) error { return w.tx(token, write) },
	"Guard": func(w *world, token lastword.Token) error {
		return pgx.BeginFunc(w.ctx, w.pool, func(tx pgx.Tx) error {
			if err := pgxlastword.Guard(w.ctx, w.store, tx, token); err != nil {
				return err
			}
			return write(w.ctx, tx)
		})
	},
	"Exec": func(w *world, token lastword.Token) error {
		_, err := pgxlastword.Exec(w.ctx, w.store, w.pool, token, increment)
		return err
	},
}

// A token in force writes; after a takeover, an expiry, a rerun, a cancel or an end nothing is written, and the reason is told.
func TestTokens(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		want  error
		token func(w *world) lastword.Token
	}{
		"lease":   {nil, func(w *world) lastword.Token { return w.lease("l", time.Minute).Token() }},
		"attempt": {nil, func(w *world) lastword.Token { return w.attempt().Token() }},
		"taken over": {lastword.ErrFenced, func(w *world) lastword.Token {
			l := w.lease("l", time.Minute)
			must(w, w.force("l"))
			return l.Token()
		}},
		"released": {lastword.ErrFenced, func(w *world) lastword.Token {
			l := w.lease("l", time.Minute)
			_, err := l.Release(w.ctx)
			must(w, err)
			return l.Token()
		}},
		"expired": {lastword.ErrExpired, func(w *world) lastword.Token {
			l := w.lease("l", time.Minute)
			w.expire("l")
			return l.Token()
		}},
		"another owner": {lastword.ErrFenced, func(w *world) lastword.Token {
			token := w.lease("l", time.Minute).Token()
			token.Nonce = "SOMEBODYELSESNONCE"
			return token
		}},
		"rerun": {lastword.ErrFenced, func(w *world) lastword.Token {
			a := w.attempt()
			_, err := w.store.Rerun(w.ctx, nil, a.ID(), 1, lastword.RerunOptions{})
			must(w, err)
			return a.Token()
		}},
		"completed": {lastword.ErrFenced, func(w *world) lastword.Token {
			a := w.attempt()
			must(w, a.Complete(w.ctx, 1, nil))
			return a.Token()
		}},
		"another attempt": {lastword.ErrFenced, func(w *world) lastword.Token {
			a := w.attempt()
			must(w, a.Return(w.ctx))
			_, err := w.store.Claim(w.ctx, lastword.ClaimOptions{Kinds: []string{"k"}})
			must(w, err)
			return a.Token()
		}},
	}
	for name, c := range cases {
		for way, run := range ways {
			t.Run(name+" by "+way, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				token := c.token(w)
				err := run(w, token)
				w.is(err, c.want)
				if c.want == nil {
					w.want(1)
					return
				}
				w.want(0)
				var refused *lastword.RefusedError
				if !errors.As(err, &refused) || refused.Token != token || refused.Reason == "" {
					t.Errorf("%v has no details", err)
				}
				if wantOperation := map[string]string{"Tx": "guard", "Guard": "guard", "Exec": "exec"}[way]; refused != nil && refused.Operation != wantOperation {
					t.Errorf("operation %q, want %q", refused.Operation, wantOperation)
				}
				if strings.Contains(fmt.Sprintf("%v %+v", err, err), token.Nonce) {
					t.Error("the error shows the nonce")
				}
				w.clean()
			})
		}
	}
}

// A refusal is counted each time, and recorded once a token.
func TestRefusalsAreRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.lease("l", time.Minute)
	must(t, w.force("l"))
	for _, run := range ways {
		for range 2 {
			w.is(run(w, l.Token()), lastword.ErrFenced)
		}
	}
	if counts := w.store.RefusalCounts(); counts.Refused != 6 {
		t.Errorf("%d refusals are counted", counts.Refused)
	}
	must(t, w.store.FlushRefusals(w.ctx))
	recorded, err := w.store.Refusals(w.ctx, lastword.RefusalFilter{})
	must(t, err)
	if len(recorded) != 1 || recorded[0].Count != 6 || recorded[0].Current != 2 {
		t.Errorf("recorded: %+v", recorded)
	}
}

// One connection for everybody: a refusal neither waits for the transaction's connection nor leaves it behind.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	store := w.sharing(w.pool)
	l := w.lease("l", time.Minute)
	must(t, w.force("l"))
	w.is(pgxlastword.Tx(w.ctx, store, w.pool, l.Token(), pgx.TxOptions{}, write), lastword.ErrFenced)
	_, err := pgxlastword.Exec(w.ctx, store, w.pool, l.Token(), increment)
	w.is(err, lastword.ErrFenced)
	w.want(0)
}

// What Tx takes, and what it does not.
func TestConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.lease("l", time.Minute).Token()
	conn, err := pgx.Connect(w.ctx, w.url)
	must(t, err)
	pooled, err := w.pool.Acquire(w.ctx)
	must(t, err)
	defer pooled.Release()
	for _, db := range []pgxlastword.DB{w.pool, pooled, conn} {
		w.is(txOn(w, db, token, pgx.TxOptions{}, write), nil)
		_, err := pgxlastword.Exec(w.ctx, w.store, db, token, increment)
		w.is(err, nil)
	}
	w.want(6)
	open, err := conn.Begin(w.ctx)
	must(t, err)
	w.is(txOn(w, conn, token, pgx.TxOptions{}, write), lastword.ErrInvalid)
	_, err = pgxlastword.Exec(w.ctx, w.store, conn, token, increment)
	w.is(err, lastword.ErrInvalid)
	must(t, open.Rollback(w.ctx))
	must(t, conn.Close(w.ctx))
	w.is(txOn(w, conn, token, pgx.TxOptions{}, write), lastword.ErrFailed)
	w.is(txOn(w, nil, token, pgx.TxOptions{}, write), lastword.ErrInvalid)
	w.is(txOn(w, w.pool, lastword.Token{}, pgx.TxOptions{}, write), lastword.ErrInvalid)
	w.is(txOn(w, w.pool, token, pgx.TxOptions{AccessMode: pgx.ReadOnly}, write), lastword.ErrFailed)
	w.want(6)
}

// While a guarded transaction is open a takeover waits, and the holder's own renewal does not.
func TestTakeoverWaits(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"Tx", "Guard"} {
		w := newWorld(t)
		l := w.lease("l", time.Minute)
		var takeover chan error
		inside := func(ctx context.Context, tx pgx.Tx) error {
			takeover = async(func() error { return w.force("l") })
			w.blocked(1)
			if _, err := l.Renew(ctx); err != nil {
				t.Errorf("%s: renewal: %v", way, err)
			}
			select {
			case err := <-takeover:
				t.Errorf("%s: the takeover did not wait: %v", way, err)
				takeover <- err
			default:
			}
			return write(ctx, tx)
		}
		if way == "Tx" {
			w.is(w.tx(l.Token(), inside), nil)
		} else {
			w.is(pgx.BeginFunc(w.ctx, w.pool, func(tx pgx.Tx) error {
				if err := pgxlastword.Guard(w.ctx, w.store, tx, l.Token()); err != nil {
					return err
				}
				return inside(w.ctx, tx)
			}), nil)
		}
		w.is(<-takeover, nil)
		w.want(1)
		w.is(w.tx(l.Token(), write), lastword.ErrFenced)
		w.want(1)
	}
}

// All ways that pgx has to send statements.
func TestExecModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		w := newWorld(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		for name, token := range map[string]lastword.Token{"lease": w.lease("l", time.Minute).Token(), "task": w.attempt().Token()} {
			before := w.value()
			for way, run := range ways {
				if err := run(w, token); err != nil {
					t.Errorf("%v, %s by %s: %v", mode, name, way, err)
				}
			}
			w.want(before + 3)
			token.Epoch++
			for way, run := range ways {
				if err := run(w, token); !errors.Is(err, lastword.ErrFenced) {
					t.Errorf("%v, stale %s by %s: %v", mode, name, way, err)
				}
			}
			w.want(before + 3)
		}
	}
}

// The isolation is stated, whatever the session's default is; the caller's is kept.
func TestIsolation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	})
	token := w.lease("l", time.Minute).Token()
	for want, opts := range map[string]pgx.TxOptions{
		"read committed":  {},
		"repeatable read": {IsoLevel: pgx.RepeatableRead},
		"serializable":    {BeginQuery: "BEGIN"},
	} {
		w.is(txOn(w, w.pool, token, opts, func(ctx context.Context, tx pgx.Tx) error {
			var got string
			if err := tx.QueryRow(ctx, `SHOW transaction_isolation`).Scan(&got); err != nil || got != want {
				t.Errorf("isolation is %s, want %s (%v)", got, want, err)
			}
			return nil
		}), nil)
	}
}

// A session that idles with a guard in its hand is ended by the server after a third of the lease, or sooner where the user said so; the
// setting ends with the transaction.
func TestIdleBound(t *testing.T) {
	t.Parallel()
	const idle, watch = `SELECT current_setting('idle_in_transaction_session_timeout')`, `SELECT coalesce(current_setting('client_connection_check_interval', true), 'unknown')`
	for setting, want := range map[string]string{"0": "10s", "2500": "2500ms", "60000": "10s"} {
		w := newWorld(t, func(c *pgxpool.Config) {
			c.MaxConns = 1
			c.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = setting
		})
		var before, after, inside, interval string
		must(t, w.pool.QueryRow(w.ctx, idle).Scan(&before))
		w.is(w.tx(w.lease("l", 30*time.Second).Token(), func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(tx.QueryRow(ctx, idle).Scan(&inside), tx.QueryRow(ctx, watch).Scan(&interval))
		}), nil)
		must(t, w.pool.QueryRow(w.ctx, idle).Scan(&after))
		if inside != want || before != after || interval != "1s" && interval != "unknown" {
			t.Errorf("idle timeout is %s where the user has %s, want %s; then %s again; the client is watched every %s", inside, before, want, after, interval)
		}
	}
}

func TestIdleHolderIsEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.lease("l", time.Second)
	err := w.tx(l.Token(), func(ctx context.Context, tx pgx.Tx) error {
		if err := write(ctx, tx); err != nil {
			return err
		}
		_, err := w.store.Acquire(ctx, "l", lastword.LeaseOptions{TTL: time.Minute, Wait: -1}) // while fn stands still
		return err
	})
	if committed, resolveErr := pgxlastword.Resolve(w.ctx, w.other, err); !errors.Is(err, lastword.ErrFailed) && (committed || resolveErr != nil) {
		t.Errorf("the idle transaction: %v", err)
	}
	w.want(0)
}

// Contention is retried in a new transaction, also where fn hides or swallows it, and at COMMIT; it ends in ErrContended.
func TestContention(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.lease("l", time.Minute).Token()
	const raise = `DO $$ BEGIN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END $$`
	w.exec(`CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF new.v = 77 THEN RAISE EXCEPTION 'late' USING ERRCODE = '40001'; END IF; RETURN NULL; END $$`)
	w.exec(`CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON r DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()`)
	for name, fail := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"returned":  func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, raise); return err },
		"hidden":    func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, raise); return errors.New("sorry") },
		"swallowed": func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, raise); return nil },
		"at commit": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, `UPDATE r SET v = 77`); return err },
		"in a batch": func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue(`SELECT 1`)
			b.Queue(raise)
			_ = tx.SendBatch(ctx, b).Close()
			return nil
		},
		"rolled back": func(ctx context.Context, tx pgx.Tx) error {
			defer tx.Rollback(ctx)
			_, err := tx.Exec(ctx, raise)
			return err
		},
	} {
		before, calls := w.value(), 0
		w.is(w.tx(token, func(ctx context.Context, tx pgx.Tx) error {
			if calls++; calls < 3 {
				return fail(ctx, tx)
			}
			return write(ctx, tx)
		}), nil)
		w.want(before + 1)
		calls = 0
		w.is(w.tx(token, func(ctx context.Context, tx pgx.Tx) error { calls++; return fail(ctx, tx) }), lastword.ErrContended)
		if calls != 8 {
			t.Errorf("%s: %d calls", name, calls)
		}
		w.want(before + 1)
	}
}

// A guard stands in no savepoint: a rollback to it would drop the lock, and a refusal could not end the transaction.
func TestGuardInSavepoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.lease("l", time.Minute).Token()
	inSavepoint := func(tx pgx.Tx) error {
		return pgx.BeginFunc(w.ctx, tx, func(inner pgx.Tx) error { return pgxlastword.Guard(w.ctx, w.store, inner, token) })
	}
	conn, err := pgx.Connect(w.ctx, w.url)
	must(t, err)
	defer conn.Close(w.ctx)
	w.is(pgx.BeginFunc(w.ctx, w.pool, inSavepoint), lastword.ErrInvalid)
	w.is(pgx.BeginFunc(w.ctx, conn, inSavepoint), lastword.ErrInvalid)
	w.is(w.tx(token, func(_ context.Context, tx pgx.Tx) error { return inSavepoint(tx) }), lastword.ErrInvalid)
}

// After a refusal nothing more can be sent on the caller's transaction.
func TestGuardRollsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.lease("l", time.Minute)
	must(t, w.force("l"))
	tx, err := w.pool.Begin(w.ctx)
	must(t, err)
	w.is(pgxlastword.Guard(w.ctx, w.store, tx, l.Token()), lastword.ErrFenced)
	w.is(write(w.ctx, tx), pgx.ErrTxClosed)
	w.is(tx.Commit(w.ctx), pgx.ErrTxClosed)
	w.want(0)
	w.clean()

	// A lock that times out is contention, and rolled back too.
	holder := w.lease("m", time.Minute)
	taker, err := w.other.Begin(w.ctx)
	must(t, err)
	defer taker.Rollback(w.ctx)
	_, err = taker.Exec(w.ctx, `UPDATE lastword_leases SET fence = fence + 1 WHERE name = 'm'`)
	must(t, err)
	_, err = w.pool.Exec(w.ctx, `ALTER ROLE postgres IN DATABASE `+pgx.Identifier{w.pool.Config().ConnConfig.Database}.Sanitize()+` SET lock_timeout = '20ms'`)
	must(t, err)
	w.pool.Reset()
	tx, err = w.pool.Begin(w.ctx)
	must(t, err)
	w.is(pgxlastword.Guard(w.ctx, w.store, tx, holder.Token()), lastword.ErrContended)
	w.is(tx.Commit(w.ctx), pgx.ErrTxClosed)
	w.is(w.tx(holder.Token(), write), lastword.ErrContended)
	var answer *pgconn.PgError
	if err := w.tx(holder.Token(), write); !errors.As(err, &answer) || answer.Code != "55P03" {
		t.Errorf("the server's word is lost: %v", err)
	}
}
