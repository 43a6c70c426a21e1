-- The rows of job invoice.extract in the embedded ledger's file: as table.sql has them for
-- Postgres.
CREATE TABLE IF NOT EXISTS invoices (
  tenant      text    NOT NULL,
  job_key     text    NOT NULL, -- as printed: acme:invoice.extract:9821:v3:p7
  document    text    NOT NULL,
  revision    integer NOT NULL,
  number      text    NOT NULL, -- '' : the text had none
  supplier    text    NOT NULL,
  currency    text    NOT NULL,
  total_cents integer NOT NULL,
  date        text,             -- null: the text had none
  saved_at    text    NOT NULL DEFAULT CURRENT_TIMESTAMP, -- UTC
  PRIMARY KEY (tenant, job_key)
) STRICT;
