package notebook

import (
	"errors"
	"fmt"
)

// Code classifies an error for every transport.
type Code string

// The codes. Anything that is not an *Error counts as Internal.
const (
	Invalid     Code = "invalid"     // the request is malformed or out of bounds
	Denied      Code = "denied"      // the actor may not do this
	NotFound    Code = "not_found"   //
	Conflict    Code = "conflict"    // the state moved on since the actor looked
	Unavailable Code = "unavailable" // cannot be done now; trying later may help
	TooLarge    Code = "too_large"   //
	Internal    Code = "internal"    // our fault; details are in the log only
)

// Error is an error for people: a code for programs and a sentence.
type Error struct {
	Code    Code
	Message string
	// Data helps the caller to go on, such as the current text after a
	// Conflict. It is marshalled as it is; nil most of the time.
	Data any
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Errorf makes an *Error. The message is a sentence with capital and full stop.
func Errorf(c Code, format string, args ...any) error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...)}
}

// CodeOf says what kind of error err is; nil has no code.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}

// MessageOf is what a person may read of err.
func MessageOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	return "Something went wrong on the server. The log has the details."
}
