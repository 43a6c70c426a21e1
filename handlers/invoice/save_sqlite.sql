INSERT INTO invoices (tenant, job_key, document, revision, number, supplier, currency, total_cents, date)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, nullif(?9, ''))
ON CONFLICT (tenant, job_key) DO UPDATE SET
  number = excluded.number, supplier = excluded.supplier, currency = excluded.currency,
  total_cents = excluded.total_cents, date = excluded.date, saved_at = CURRENT_TIMESTAMP
