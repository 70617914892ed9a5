package validate

// Known returns the rules for which Message has a text.
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
