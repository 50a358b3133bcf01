package server

import (
	"fmt"
	"net/http"
	"time"
)

const (
	heartbeat = 15 * time.Second
	writeTime = 10 * time.Second // for one event, to a client that does not read
	reconnect = time.Second      // what browsers are asked to wait
)

// events is GET /v1/events. A reconnecting client gets a new snapshot whatever Last-Event-ID it sends: that is everything there is to
// catch up with.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	l := s.hub.join()
	if l == nil {
		w.Header().Set("Retry-After", "10")
		writeProblem(w, http.StatusServiceUnavailable, fmt.Sprintf("%d clients listen already: try again later", maxListeners))
		return
	}
	defer s.hub.leave(l)
	connection := http.NewResponseController(w)
	// The server's time for reading a request would end the stream.
	_ = connection.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	send := func(format string, values ...any) bool {
		_ = connection.SetWriteDeadline(time.Now().Add(writeTime))
		if _, err := fmt.Fprintf(w, format, values...); err != nil {
			return false
		}
		return connection.Flush() == nil
	}
	if r.Method == http.MethodHead || !send("retry: %d\n\n", reconnect.Milliseconds()) {
		return
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		alive := true
		select {
		case e, ok := <-l.events:
			// JSON has no line breaks of its own.
			alive = ok && send("id: %d\nevent: %s\ndata: %s\n\n", e.id, e.name, e.data)
		case <-beat.C:
			alive = send(": heartbeat\n\n")
		case <-r.Context().Done():
			return
		}
		if !alive {
			return
		}
	}
}
