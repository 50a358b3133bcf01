package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
)

const (
	lookAgain  = 2 * time.Second // without any word from the stream
	retryFirst = 50 * time.Millisecond
	retryMost  = 2 * time.Second
	giveUp     = time.Minute // of a server that was there and answers no more
)

// Wait returns the submission once a generation of it is settled: it has its verdict, it was cancelled, or a later generation has
// begun (then Submission.Generation is above the one asked for, and its verdict will not come any more unless Verdicts has it).
// generation 0 is the one in force when Wait begins. A server that goes away meanwhile is waited for, for a minute.
func (c *Client) Wait(ctx context.Context, id, generation int64) (Submission, error) {
	return c.Watch(ctx, id, generation, nil)
}

// Watch is Wait; each is told every state that was seen on the way, the last one included.
func (c *Client) Watch(ctx context.Context, id, generation int64, each func(Summary)) (Submission, error) {
	submission, err := c.Submission(ctx, id)
	if err != nil {
		return Submission{}, err
	}
	if generation == 0 {
		generation = submission.Generation
	}
	if each == nil {
		each = func(Summary) {}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	hints := make(chan Summary)
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		c.listen(ctx, id, hints)
	}()
	defer func() {
		stop()
		<-listening
	}()
	reached := time.Now()
	for {
		if err == nil {
			reached = time.Now()
			each(submission.Summary)
			if over(submission, generation) {
				return submission, nil
			}
		}
		c.nextHint(ctx, hints, each, generation)
		if ctx.Err() != nil {
			return submission, context.Cause(ctx)
		}
		var next Submission
		next, err = c.Submission(ctx, id)
		switch refused := (*Error)(nil); {
		case err == nil:
			submission = next
		case errors.As(err, &refused) && refused.Status < 500, time.Since(reached) > giveUp:
			return submission, err
		}
	}
}

// over: the state that was read says that nothing more comes for the generation.
func over(s Submission, generation int64) bool {
	return s.Generation > generation || s.Generation == generation && s.Settled()
}

// nextHint returns when the submission is worth reading: the stream shows it settled, or has said nothing for a while. Steps on the
// way are only told.
func (c *Client) nextHint(ctx context.Context, hints <-chan Summary, each func(Summary), generation int64) {
	timer := time.NewTimer(lookAgain)
	defer timer.Stop()
	for {
		select {
		case s := <-hints:
			if s.Generation > generation || s.Settled() {
				return
			}
			each(s)
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// listen sends what the event stream says about one submission until ctx ends, and connects again whenever the stream breaks.
func (c *Client) listen(ctx context.Context, id int64, hints chan<- Summary) {
	pause := retryFirst
	for ctx.Err() == nil {
		response, err := c.send(ctx, http.MethodGet, "/v1/events", "text/event-stream", nil)
		if err == nil {
			pause = retryFirst
			readEvents(response, func(name, data string) {
				for _, s := range summaries(name, data) {
					if s.ID != id {
						continue
					}
					select {
					case hints <- s:
					case <-ctx.Done():
					}
				}
			})
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(pause*2, retryMost)
	}
}

func summaries(name, data string) []Summary {
	switch name {
	case "snapshot":
		var snapshot Snapshot
		if json.Unmarshal([]byte(data), &snapshot) == nil {
			return snapshot.Submissions
		}
	case "submission":
		var s Summary
		if json.Unmarshal([]byte(data), &s) == nil {
			return []Summary{s}
		}
	}
	return nil
}

// readEvents calls each for every event until the stream ends, and closes it.
func readEvents(response *http.Response, each func(name, data string)) {
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxAnswer)
	var name string
	var data []string
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			if len(data) > 0 {
				each(name, strings.Join(data, "\n"))
			}
			name, data = "", nil
			continue
		}
		// A line that begins with a colon is a heartbeat: its field is "".
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			name = value
		case "data":
			data = append(data, value)
		}
	}
}
