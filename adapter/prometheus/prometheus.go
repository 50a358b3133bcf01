// Package prometheuslastword shows what lastword's Observer tells as Prometheus metrics.
package prometheuslastword

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastword-go/lastword"
)

// Observer is a lastword.Observer and a prometheus.Collector: give it to lastword.Options and register it once. Labels are lease names and
// task kinds, never ids.
//
//	lastword_leases_acquired_total{name}, lastword_leases_held_total{name}, lastword_leases_released_total{name}
//	lastword_lease_wait_seconds{name}          how long acquisitions waited
//	lastword_lost_total{kind,name}             jobs and handlers that were told that their right is gone
//	lastword_refused_total{kind,operation}     stale writes, renewals and completions
//	lastword_renewals_total{kind,name,result}  result is ok, or missed: one that did not get through
//	lastword_renewal_seconds{kind,name}        how long renewals took
//	lastword_renewal_left_seconds{kind,name}   what the grant had left when it was renewed
type Observer struct {
	acquired, held, released, lost, refused, renewals *prometheus.CounterVec
	wait, renewal, left                               *prometheus.HistogramVec
}

// New returns an Observer that has seen nothing yet.
func New() *Observer {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "lastword", Name: name, Help: help}, labels)
	}
	seconds := func(name, help string, from float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "lastword", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(from, 4, 10)}, labels)
	}
	return &Observer{
		acquired: counter("leases_acquired_total", "Leases granted.", "name"),
		held:     counter("leases_held_total", "Acquisitions given up because another holds the lease.", "name"),
		released: counter("leases_released_total", "Leases given back by their holder.", "name"),
		lost:     counter("lost_total", "Jobs and handlers told that their right is gone.", "kind", "name"),
		refused:  counter("refused_total", "Stale writes, renewals and completions refused.", "kind", "operation"),
		renewals: counter("renewals_total", "Renewals and heartbeats, by whether they got through.", "kind", "name", "result"),
		wait:     seconds("lease_wait_seconds", "How long acquisitions waited.", 0.001, "name"),
		renewal:  seconds("renewal_seconds", "How long renewals and heartbeats took.", 0.0005, "kind", "name"),
		left:     seconds("renewal_left_seconds", "What the grant had left when it was renewed.", 0.1, "kind", "name"),
	}
}

// Observe implements lastword.Observer.
func (o *Observer) Observe(what lastword.Observation) {
	kind := string(what.Kind)
	switch what.What {
	case lastword.Acquired:
		o.acquired.WithLabelValues(what.Name).Inc()
		o.wait.WithLabelValues(what.Name).Observe(what.Duration.Seconds())
	case lastword.Held:
		o.held.WithLabelValues(what.Name).Inc()
	case lastword.Released:
		o.released.WithLabelValues(what.Name).Inc()
	case lastword.Lost:
		o.lost.WithLabelValues(kind, what.Name).Inc()
	case lastword.Refused:
		o.refused.WithLabelValues(kind, what.Operation).Inc()
	case lastword.Renewal:
		result := "ok"
		if what.Err != nil {
			result = "missed"
		}
		o.renewals.WithLabelValues(kind, what.Name, result).Inc()
		o.renewal.WithLabelValues(kind, what.Name).Observe(what.Duration.Seconds())
		o.left.WithLabelValues(kind, what.Name).Observe(what.Left.Seconds())
	}
}

func (o *Observer) collectors() []prometheus.Collector {
	return []prometheus.Collector{o.acquired, o.held, o.released, o.lost, o.refused, o.renewals, o.wait, o.renewal, o.left}
}

// Describe implements prometheus.Collector.
func (o *Observer) Describe(out chan<- *prometheus.Desc) {
	for _, c := range o.collectors() {
		c.Describe(out)
	}
}

// Collect implements prometheus.Collector.
func (o *Observer) Collect(out chan<- prometheus.Metric) {
	for _, c := range o.collectors() {
		c.Collect(out)
	}
}
