package lastword

import "time"

// Observer is told what happens to leases and attempts, for metrics. It is called by several goroutines, on the way of the work: it must
// be quick and must not call the Store.
type Observer interface {
	Observe(Observation)
}

// What says what an [Observation] is about.
type What string

// What an Observer is told. Only some fields of the Observation are set for each.
const (
	Acquired What = "acquired" // a lease was granted; Duration is how long the call waited
	Held     What = "held"     // a call gave up because another holds the lease; Duration is how long it waited
	Released What = "released" // a lease was given back by its holder
	Renewal  What = "renewal"  // a renewal or heartbeat was tried; Duration is how long it took, Left what the grant had left, Err nil if it got through
	Lost     What = "lost"     // a job or handler was told that its right is gone; Err says why
	Refused  What = "refused"  // a write, renewal or completion was refused; Operation and Err say which and why
)

// Observation is one thing that happened.
type Observation struct {
	What      What
	Kind      Kind
	Name      string // the lease's name, or the task's kind; never a task's id, so that it can be a label; "" where it is not known
	Operation string
	Duration  time.Duration
	Left      time.Duration
	Err       error
}

func (s *Store) observe(o Observation) {
	if s.observer != nil {
		s.observer.Observe(o)
	}
}

// observeAs fills in whose observations these are.
func (s *Store) observeAs(kind Kind, name string) func(Observation) {
	return func(o Observation) {
		o.Kind, o.Name = kind, name
		s.observe(o)
	}
}
