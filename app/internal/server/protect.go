package server

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// contentPolicy allows our own files and nothing else: a submission's source that slipped through the escaping could still not run.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// protect keeps other people's pages in a user's browser away from a server that has no access control: they may neither send what
// changes something nor, by a name of theirs that resolves to loopback, read.
func (s *Server) protect(next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, http.StatusForbidden, "a page of another origin sent this: use the page of this server, or a program that sends no Origin")
	}))
	next = crossOrigin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", contentPolicy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		if overLoopback(r) && !s.knownHost(r.Host) {
			writeProblem(w, http.StatusMisdirectedRequest, fmt.Sprintf("this server listens on loopback and does not answer to the host %.100q: open it as http://localhost with its port", r.Host))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// overLoopback reports whether the request came to a loopback address of ours.
func overLoopback(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	tcp, ok := local.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func (s *Server) knownHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") ||
		slices.ContainsFunc(s.config.Hosts, func(known string) bool { return strings.EqualFold(known, host) })
}
