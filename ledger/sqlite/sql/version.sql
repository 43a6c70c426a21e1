select coalesce(max(version), 0) from paidonce_schema
