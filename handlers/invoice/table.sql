-- The rows of job invoice.extract, written in the transaction that commits a job's
-- result (see rows.go). Applied by `worker migrate up`; running it again changes nothing.
--
-- The primary key is the job's own: a transaction that is repeated, or a job that is run
-- again on purpose, finds its row and never adds a second one. The tenant is in it, as
-- in every key of the ledger, so that the table can be distributed by tenant.
CREATE TABLE IF NOT EXISTS invoices (
  tenant      text        NOT NULL,
  job_key     text        NOT NULL, -- as printed: acme:invoice.extract:9821:v3:p7
  document    text        NOT NULL,
  revision    integer     NOT NULL,
  number      text        NOT NULL, -- '' : the text had none
  supplier    text        NOT NULL,
  currency    text        NOT NULL,
  total_cents bigint      NOT NULL,
  date        date,                 -- null: the text had none
  saved_at    timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, job_key)
);
