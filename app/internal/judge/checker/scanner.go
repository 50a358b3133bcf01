package checker

import (
	"bytes"
	"io"
)

const (
	// maxChunk is how much of a token is looked at at once. A longer token is
	// compared as text, piece by piece: the format allows a limit on a
	// number's digits (at least 30 on either side of the point), and this is
	// what keeps memory flat when a token has no end.
	maxChunk = 4096
	// bufferSize holds many chunks, so that moving the rest of the buffer to
	// its front stays rare.
	bufferSize = 64 << 10
	// maxEmptyReads is how often a reader may return nothing and no error.
	maxEmptyReads = 100
)

// scanner cuts a stream into white space and chunks of tokens and counts lines
// and columns (both from 1, columns in bytes).
type scanner struct {
	r        io.Reader
	buf      []byte
	pos, end int
	eof      bool
	err      error // a failed read; io.EOF is not one
	line     int
	col      int
	last     byte // the byte passed last
	any      bool // whether a byte was passed
}

func newScanner(r io.Reader) *scanner {
	return &scanner{r: r, buf: make([]byte, bufferSize), line: 1, col: 1}
}

// need makes n bytes available at pos, fewer only at the end of the stream.
// Bytes handed out before are overwritten.
func (s *scanner) need(n int) {
	if s.end-s.pos >= n || s.eof {
		return
	}
	if len(s.buf)-s.pos < n {
		s.end = copy(s.buf, s.buf[s.pos:s.end])
		s.pos = 0
	}
	for empty := 0; s.end-s.pos < n && !s.eof; {
		got, err := s.r.Read(s.buf[s.end:])
		s.end += got
		if got > 0 {
			empty = 0
		} else if empty++; err == nil && empty >= maxEmptyReads {
			err = io.ErrNoProgress
		}
		if err != nil {
			s.eof = true
			if err != io.EOF {
				s.err = err
			}
		}
	}
}

// skipMark passes over a UTF-8 byte-order mark.
func (s *scanner) skipMark() bool {
	s.need(3)
	if !bytes.HasPrefix(s.buf[s.pos:s.end], []byte("\xef\xbb\xbf")) {
		return false
	}
	s.pos += 3
	return true
}

// chunk passes over the next bytes of the token at hand, at most maxChunk, and
// reports whether the token goes on after them. It is empty when no token
// starts here. The bytes are valid until the scanner is used again.
func (s *scanner) chunk() (token []byte, more bool) {
	s.need(maxChunk + 1)
	i, stop := s.pos, min(s.end, s.pos+maxChunk)
	for i < stop && !isSpace(s.buf[i]) {
		i++
	}
	token = s.buf[s.pos:i]
	s.pos = i
	s.col += len(token)
	if len(token) > 0 {
		s.last, s.any = token[len(token)-1], true
	}
	return token, len(token) == maxChunk && i < s.end && !isSpace(s.buf[i])
}

// skipSpace passes over any white space.
func (s *scanner) skipSpace() {
	for {
		s.need(1)
		for s.pos < s.end && isSpace(s.buf[s.pos]) {
			s.pass(s.buf[s.pos])
		}
		if s.pos < s.end || s.eof {
			return
		}
	}
}

// peekSpace gives the white-space byte at hand, with CRLF as one '\n'.
func (s *scanner) peekSpace() (b byte, ok bool) {
	s.need(2)
	if s.pos == s.end || !isSpace(s.buf[s.pos]) {
		return 0, false
	}
	if s.crlf() {
		return '\n', true
	}
	return s.buf[s.pos], true
}

// nextSpace passes over what peekSpace showed.
func (s *scanner) nextSpace() {
	s.need(2)
	if s.crlf() {
		s.pass('\r')
	}
	s.pass(s.buf[s.pos])
}

func (s *scanner) crlf() bool {
	return s.end-s.pos >= 2 && s.buf[s.pos] == '\r' && s.buf[s.pos+1] == '\n'
}

func (s *scanner) pass(b byte) {
	s.pos++
	s.last, s.any = b, true
	if b == '\n' {
		s.line++
		s.col = 1
	} else {
		s.col++
	}
}

func (s *scanner) atEnd() bool {
	s.need(1)
	return s.pos == s.end
}

// unterminated reports whether the stream ended in a line without a newline.
func (s *scanner) unterminated() bool {
	return s.atEnd() && s.any && s.last != '\n'
}

// describe names what stands next, for a message.
func (s *scanner) describe() string {
	if b, ok := s.peekSpace(); ok {
		switch b {
		case ' ':
			return "a space"
		case '\n':
			return "a line end"
		case '\t':
			return "a tab"
		default:
			return "the white-space byte " + quote([]byte{b}, 0)
		}
	}
	if s.atEnd() {
		return "the end of the output"
	}
	token, _ := s.chunk()
	return quote(token, 0)
}

// isSpace is C's isspace in the C locale.
func isSpace(b byte) bool {
	return b == ' ' || '\t' <= b && b <= '\r'
}
