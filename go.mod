module github.com/lastword-go/lastword

go 1.26.0
