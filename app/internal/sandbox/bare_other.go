//go:build !linux && !darwin

package sandbox

import (
	"context"
	"errors"
	"os"
)

// openNoFollow has no equal here.
const openNoFollow = 0

func (b *Box) runBare(context.Context, Command) (Result, error) {
	return Result{}, errors.New("needs Linux or macOS")
}

func runBareStage() { os.Exit(1) }
