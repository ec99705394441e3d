"""State that persists between executions: resident variables, hidden state, seeds, host tables."""
