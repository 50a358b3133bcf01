package pgxlastword_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lastword-go/lastword"
	pgxlastword "github.com/lastword-go/lastword/adapter/pgx"
)

// wire is a client's connection that counts round trips and can be cut.
type wire struct {
	net.Conn
	net     *network
	mu      sync.Mutex
	reading bool
	cut     fault
}

type fault int

const (
	none       fault = iota
	cutRequest       // the request is lost: the server never sees it
	cutReply         // the server does it, and its reply is lost
)

// network decides the fate of each request.
type network struct {
	trips atomic.Int64
	fate  func(request []byte) fault
}

func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: conn, net: n, reading: true}, nil
}

func (n *network) configure(c *pgxpool.Config) { c.ConnConfig.DialFunc = n.dial }

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reading {
		w.net.trips.Add(1)
	}
	w.reading = false
	if w.cut == none && w.net.fate != nil {
		w.cut = w.net.fate(p)
	}
	if w.cut == cutRequest {
		_ = w.Close()
		return len(p), nil // as a kernel does that has buffered it
	}
	return w.Conn.Write(p)
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reading = true
	if w.cut != none {
		_ = w.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// BEGIN and guard are one round trip, COMMIT another; Exec is one; Guard is one.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	network := &network{}
	w := newWorld(t, network.configure, func(c *pgxpool.Config) { c.MaxConns = 1 })
	token := w.lease("l", time.Minute).Token()
	nothing := func(context.Context, pgx.Tx) error { return nil }
	for name, c := range map[string]struct {
		want int64
		run  func() error
	}{
		"Tx, empty":     {2, func() error { return w.tx(token, nothing) }},
		"Tx, one write": {3, func() error { return w.tx(token, write) }},
		"plain":         {3, func() error { return pgx.BeginFunc(w.ctx, w.pool, func(tx pgx.Tx) error { return write(w.ctx, tx) }) }},
		"Guard":         {4, func() error { return ways["Guard"](w, token) }},
		"Exec":          {1, func() error { return ways["Exec"](w, token) }},
	} {
		must(t, c.run()) // the connection learns the statements
		for range 3 {
			before := network.trips.Load()
			must(t, c.run())
			if got := network.trips.Load() - before; got != c.want {
				t.Errorf("%s takes %d round trips, want %d", name, got, c.want)
			}
		}
	}
}

// The reply to COMMIT is lost, or COMMIT itself: unknown, not run again, and Resolve tells which.
func TestLostCommit(t *testing.T) {
	t.Parallel()
	for _, cut := range []fault{cutReply, cutRequest} {
		network := &network{fate: func(request []byte) fault {
			if bytes.Contains(request, []byte("commit\x00")) {
				return cut
			}
			return none
		}}
		w := newWorld(t, network.configure)
		token := w.lease("l", time.Minute).Token()
		calls := 0
		err := w.tx(token, func(ctx context.Context, tx pgx.Tx) error { calls++; return write(ctx, tx) })
		var unknown *pgxlastword.UnknownError
		if !errors.Is(err, lastword.ErrUnknown) || !errors.As(err, &unknown) || unknown.XID == 0 || calls != 1 {
			t.Fatalf("cut %d: %v after %d calls", cut, err, calls)
		}
		if text := err.Error(); !strings.Contains(text, "the reply to COMMIT was lost") || strings.Contains(text, token.Nonce) {
			t.Error(text)
		}
		committed, err := pgxlastword.Resolve(w.ctx, w.other, err)
		if err != nil || committed != (cut == cutReply) || committed != (w.value() == 1) {
			t.Errorf("cut %d: Resolve says %v (%v), and the row holds %d", cut, committed, err, w.value())
		}
		w.clean()
	}
}

// A lost reply to Exec is unknown and stays so; a connection that was dead before is none.
func TestLostExec(t *testing.T) {
	t.Parallel()
	var cut atomic.Int64
	network := &network{fate: func([]byte) fault { return fault(cut.Swap(int64(none))) }}
	w := newWorld(t, network.configure, func(c *pgxpool.Config) { c.MaxConns = 1 })
	token := w.lease("l", time.Minute).Token()
	must(t, ways["Exec"](w, token))
	for i, lost := range []fault{cutReply, cutRequest} {
		cut.Store(int64(lost))
		err := ways["Exec"](w, token)
		w.is(err, lastword.ErrUnknown)
		_, err = pgxlastword.Resolve(w.ctx, w.other, err)
		w.is(err, lastword.ErrUnknown)
		w.want(2)
		if i == 0 {
			must(t, w.pool.Ping(w.ctx))
		}
	}
	must(t, w.pool.Ping(w.ctx))
	w.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	w.is(w.tx(token, write), nil) // BEGIN on a dead connection is tried again on the next
	w.want(3)
}

// A pool full of connections that the server has killed is no contention: each failed BEGIN takes one out.
func TestDeadPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *pgxpool.Config) {
		c.MaxConns = 20
		c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // nor would it after less than a second
	})
	token := w.lease("l", time.Minute).Token()
	var conns []*pgxpool.Conn
	for range 20 {
		conn, err := w.pool.Acquire(w.ctx)
		must(t, err)
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		pid := conn.Conn().PgConn().PID()
		w.exec(`SELECT pg_terminate_backend($1::int)`, pid)
		for alive := true; alive; {
			must(t, w.other.QueryRow(w.ctx, `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = $1::int)`, pid).Scan(&alive))
		}
		conn.Release()
	}
	w.is(w.tx(token, write), nil)
	w.want(1)
}

func TestResolve(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := pgxlastword.Resolve(w.ctx, w.pool, errors.New("other"))
	w.is(err, lastword.ErrInvalid)
	_, err = pgxlastword.Resolve(w.ctx, w.pool, &pgxlastword.UnknownError{XID: 1 << 40})
	w.is(err, lastword.ErrUnknown)
	conn, err := pgx.Connect(w.ctx, w.url)
	must(t, err)
	must(t, conn.Close(w.ctx))
	_, err = pgxlastword.Resolve(w.ctx, conn, &pgxlastword.UnknownError{XID: 5})
	w.is(err, lastword.ErrUnknown)

	// In progress: it waits for the verdict, or for ctx.
	for _, commit := range []bool{true, false} {
		tx, err := w.pool.Begin(w.ctx)
		must(t, err)
		var xid int64
		must(t, tx.QueryRow(w.ctx, `SELECT txid_current()`).Scan(&xid))
		ctx, cancel := context.WithTimeout(w.ctx, 20*time.Millisecond)
		defer cancel()
		_, err = pgxlastword.Resolve(ctx, w.other, &pgxlastword.UnknownError{XID: xid})
		w.is(err, lastword.ErrUnknown)
		w.is(err, context.DeadlineExceeded)
		var committed bool
		done := async(func() (err error) {
			committed, err = pgxlastword.Resolve(w.ctx, w.other, &pgxlastword.UnknownError{XID: xid})
			return err
		})
		if commit {
			must(t, tx.Commit(w.ctx))
		} else {
			must(t, tx.Rollback(w.ctx))
		}
		w.is(<-done, nil)
		if committed != commit {
			t.Errorf("Resolve says %v, it was %v", committed, commit)
		}
	}
}

// A thousand increments over a network that loses requests and replies at random: the sum is what was acknowledged and what was resolved
// as committed, exactly.
func TestIncrementsOverABadNetwork(t *testing.T) {
	t.Parallel()
	const seed, workers, each, odds = 7, 4, 250, 25
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, seed))
	network := &network{fate: func([]byte) fault {
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(odds) > 0 {
			return none
		}
		return fault(1 + random.IntN(2))
	}}
	w := newWorld(t, network.configure)
	token := w.lease("l", time.Minute).Token()
	var acknowledged, resolved, lost, refused atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for range each {
				err := w.tx(token, write)
				switch {
				case err == nil:
					acknowledged.Add(1)
				case errors.Is(err, lastword.ErrUnknown):
					committed, err := pgxlastword.Resolve(w.ctx, w.other, err)
					switch {
					case err != nil:
						t.Errorf("seed %d: resolve: %v", seed, err)
					case committed:
						resolved.Add(1)
					default:
						lost.Add(1)
					}
				case errors.Is(err, lastword.ErrFailed), errors.Is(err, lastword.ErrContended):
					refused.Add(1)
				default:
					t.Errorf("seed %d: %v", seed, err)
				}
			}
		})
	}
	group.Wait()
	t.Logf("seed %d: %d acknowledged, %d unknown and committed, %d unknown and aborted, %d failed", seed, acknowledged.Load(), resolved.Load(), lost.Load(), refused.Load())
	w.want(acknowledged.Load() + resolved.Load())
	if resolved.Load() == 0 || lost.Load() == 0 || refused.Load() == 0 {
		t.Error("the network was too good to show anything")
	}
}
