package server

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/lastword-go/lastword/app/internal/api"
)

const (
	pollEvery    = 250 * time.Millisecond // while somebody listens: other processes change things too
	pollAtMost   = 25 * time.Millisecond  // however often somebody asks to look
	queryTime    = 10 * time.Second
	maxListeners = 500
	queued       = 256 // events that a listener may lag behind before it is cut off
)

// event is one server-sent event.
type event struct {
	id   int64
	name string
	data []byte
}

// listener is one client on the stream. Its channel is closed when it is cut off.
type listener struct {
	events  chan event
	greeted bool // has got its snapshot
}

// hub looks for changes of the newest submissions while anybody listens and tells the listeners. It never waits for one.
type hub struct {
	newest func(context.Context) ([]api.Summary, error)
	log    *slog.Logger
	woken  chan struct{}

	mu        sync.Mutex
	listeners map[*listener]struct{}
	lastID    int64
	told      map[int64][]byte // by submission: what the greeted listeners know
	failing   bool
}

func newHub(newest func(context.Context) ([]api.Summary, error), log *slog.Logger) *hub {
	// Ids go on rising over a restart of the server, as far as its clock does.
	return &hub{newest: newest, log: log, woken: make(chan struct{}, 1), listeners: map[*listener]struct{}{}, lastID: time.Now().UnixMilli()}
}

// look asks for a look as soon as possible.
func (h *hub) look() {
	select {
	case h.woken <- struct{}{}:
	default:
	}
}

// join returns a new listener, or nil when there are too many.
func (h *hub) join() *listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.listeners) >= maxListeners {
		return nil
	}
	l := &listener{events: make(chan event, queued)}
	h.listeners[l] = struct{}{}
	h.look()
	return l
}

func (h *hub) leave(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(l)
}

// drop closes a listener's channel, once.
func (h *hub) drop(l *listener) {
	if _, ok := h.listeners[l]; ok {
		delete(h.listeners, l)
		close(l.events)
	}
}

func (h *hub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.listeners)
}

// run looks until ctx ends, and cuts everybody off then.
func (h *hub) run(ctx context.Context) error {
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for l := range h.listeners {
			h.drop(l)
		}
	}()
	for {
		if h.count() > 0 {
			h.poll(ctx)
			if !sleep(ctx, pollAtMost) {
				return nil
			}
		}
		if !h.await(ctx) {
			return nil
		}
	}
}

// await returns when it is time to look; without a listener, only when one has come.
func (h *hub) await(ctx context.Context) bool {
	var tick <-chan time.Time
	if h.count() > 0 {
		timer := time.NewTimer(pollEvery)
		defer timer.Stop()
		tick = timer.C
	}
	select {
	case <-tick:
	case <-h.woken:
	case <-ctx.Done():
		return false
	}
	return true
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (h *hub) poll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	list, err := h.newest(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		// Once an outage: this comes four times a second.
		if !h.failing && ctx.Err() == nil {
			h.log.Error("look for changes", "error", err)
		}
		h.failing = true
		return
	}
	h.failing = false
	h.tell(list)
}

// tell sends what differs to those who know the rest, and everything to those who are new.
func (h *hub) tell(list []api.Summary) {
	now := make(map[int64][]byte, len(list))
	var changes []event
	// The oldest first, so that whoever puts each new one on top ends in order.
	for i := len(list) - 1; i >= 0; i-- {
		text, err := json.Marshal(list[i])
		if err != nil {
			h.log.Error("encode a submission", "submission", list[i].ID, "error", err)
			continue
		}
		now[list[i].ID] = text
		if !bytes.Equal(h.told[list[i].ID], text) {
			h.lastID++
			changes = append(changes, event{id: h.lastID, name: "submission", data: text})
		}
	}
	h.told = now
	var snapshot event
	for l := range h.listeners {
		if l.greeted {
			h.send(l, changes...)
			continue
		}
		if snapshot.data == nil {
			data, err := json.Marshal(api.Snapshot{Now: time.Now().UTC(), Submissions: list})
			if err != nil {
				h.log.Error("encode a snapshot", "error", err)
				return
			}
			h.lastID++
			snapshot = event{id: h.lastID, name: "snapshot", data: data}
		}
		l.greeted = true
		h.send(l, snapshot)
	}
}

// send cuts off who has not taken what was sent before.
func (h *hub) send(l *listener, events ...event) {
	for _, e := range events {
		select {
		case l.events <- e:
		default:
			h.drop(l)
			return
		}
	}
}
