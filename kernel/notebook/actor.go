package notebook

import "slices"

// ActorKind says what sort of party asks.
type ActorKind string

// The kinds of actor.
const (
	Person ActorKind = "person"
	Agent  ActorKind = "agent"
	Server ActorKind = "server"
)

// Scope is one thing a credential allows.
type Scope string

// The scopes. Only a person's credential can hold Review.
const (
	ScopeRead   Scope = "read"
	ScopeEdit   Scope = "edit"
	ScopeRun    Scope = "run"
	ScopeReview Scope = "review"
	ScopeAdmin  Scope = "admin"
)

// Author is the part of an actor that events keep.
type Author struct {
	Kind ActorKind `json:"kind"`
	ID   string    `json:"id"`
	Name string    `json:"name,omitempty"`
}

// Actor is whoever asks for an op.
type Actor struct {
	Author
	Scopes []Scope
}

// May reports whether the actor's credential holds the scope.
func (a Actor) May(s Scope) bool { return slices.Contains(a.Scopes, s) }

// TheServer is the actor of everything the server does by itself.
var TheServer = Actor{Author: Author{Kind: Server, ID: "server", Name: "Sandbook"}}
