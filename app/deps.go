package app

import (
	_ "github.com/alecthomas/kong"
	_ "github.com/danielgtaylor/huma/v2"
	_ "github.com/danielgtaylor/huma/v2/adapters/humago"
	_ "github.com/danielgtaylor/huma/v2/humatest"
	_ "github.com/elastic/go-seccomp-bpf"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lastword-go/lastword"
	_ "github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/manager"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/sys/unix"
	_ "modernc.org/sqlite"
)
