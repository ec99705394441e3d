"""What stays between steps and executions: variables on the device, hidden state, seeds, tables on the host."""
