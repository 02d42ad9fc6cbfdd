package pages

// zh is the Chinese table. Its keys are the English strings as they are
// written where they are used; a test sees that none is missing or left over.
var zh = map[string]string{}
