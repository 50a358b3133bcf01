// Package adapter is the module of what has dependencies: one folder for each of them, and the library's promises run on every
// engine through every driver. The library itself imports the standard library only.
package adapter
