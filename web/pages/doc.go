// Package pages prints the pages of the application: a component is given a
// value and writes HTML. It is pure and decides nothing: what may be done, what
// is stale and what a number means has been worked out by package view. It
// fetches nothing and knows no route but those its links and forms name.
//
// Every string a person reads goes through Lang.T, whose table is zh.go.
// Every component in every state is in the gallery.
package pages
