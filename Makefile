.PHONY: help run test lint bench build clean

help: ## print this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' Makefile

run: build ## build, and serve API and console
	./bin/lastword serve

test: ## every test, on every engine, with the race detector; says first which engines there are
	@go test -count=1 -v -run='^TestEngines$$' ./adapter | grep '^engines:'
	go test -race ./... ./adapter/... ./app/...

lint: ## formatting, vet, linters, and what the library may import
	./tools/lint

bench: ## the benchmarks, without the tests
	go test -run='^$$' -bench=. -benchmem ./... ./adapter/... ./app/...

build: ## bin/lastword
	go build -o bin/lastword ./app/cmd/lastword

clean: ## remove what was built
	rm -rf bin
