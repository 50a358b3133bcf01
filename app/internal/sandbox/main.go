package sandbox

import "os"

// The names under which the program is started again as a stage of the sandbox.
const (
	initName = "lastword-sandbox-init" // first process of a box
	bareName = "lastword-sandbox-bare" // sets rlimits for ModeNone
)

// Main must be the first thing main (or TestMain) does. In a process that the sandbox started as one of its stages it
// does that stage's work and does not return; otherwise it returns at once. A program that does not call it would
// be started a second time in place of the stage.
func Main() {
	if len(os.Args) == 0 {
		return
	}
	switch os.Args[0] {
	case initName:
		runInit()
	case bareName:
		runBareStage()
	}
}
