package notebook

// Deeper says whether JSON nests more than most levels, without parsing it: what
// has passed one decoder may be too deep for the next, or for a client.
func Deeper(data []byte, most int) bool {
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			if depth++; depth > most {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}
