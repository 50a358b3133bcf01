// Package lastword gives SQL databases fenced leases and fenced tasks.
package lastword
