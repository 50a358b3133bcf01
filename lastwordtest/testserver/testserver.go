// Package testserver starts private database servers for tests: real ones, each with its own data folder and port, that a
// test may stop, kill, freeze and start again. They end with the test process, also when that is killed.
//
//	pg, err := testserver.StartPostgres(ctx)
//	defer pg.Close()
//	url, drop, err := pg.NewDatabase(ctx)
//	defer drop()
//
// Each test binary starts its own server (PostgreSQL 0.7 s, MariaDB 0.8 s, Redis 0.02 s) and gives each test a database of
// its own; tests on Redis share one, and differ in the names of their keys. Where a binary is missing and we may install it
// (root, Debian), it is installed; LASTWORD_TEST_INSTALL=0 forbids that.
//
// An engine is one file: how to prepare the data folder, the command line, and how to see that it is ready. Everything
// else is the same for all of them and stands in server.go.
package testserver

import "errors"

// ErrGiven is the answer to Stop, Kill, Freeze, Thaw and Restart of a server that was given by an environment variable:
// it is not ours to harm.
var ErrGiven = errors.New("testserver: the server was given by the environment; only a private one can be stopped, killed or frozen")
