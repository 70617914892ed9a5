package validate

// Known returns the rules that Message has words for.
func Known() []string {
	tags := []string{"oneof"}
	for tag := range messages {
		tags = append(tags, tag)
	}
	for tag := range comparisons {
		tags = append(tags, tag)
	}
	return tags
}
