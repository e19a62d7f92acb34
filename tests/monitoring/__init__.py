"""What people are told: metrics, rules, alerts, pages and logs."""
