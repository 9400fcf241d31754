"""The ledger is append-only and balanced, and no intent rests on a count of the budgets that is not in force."""

from django.db import migrations

# Limits and budgets are part of the configuration: any change of theirs moves its version.
TABLES = ("inference_limit", "inference_budget", "accounts_team")
# The number is inference.restoring.LOCK. Whoever counts the budgets holds it alone, intents hold it together.
FORWARD = """
INSERT INTO inference_budgetstate (id, generation) VALUES (true, 1);
CREATE FUNCTION inference_check_generation(expected bigint) RETURNS bigint LANGUAGE plpgsql STRICT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(18706482885390849);
    IF (SELECT generation FROM inference_budgetstate) IS DISTINCT FROM expected THEN
        RAISE EXCEPTION 'the budgets were counted anew' USING ERRCODE = 'BR001';
    END IF;
    RETURN expected;
END $$;

CREATE FUNCTION inference_transfer_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'inference_transfer is append-only: % is refused', TG_OP
        USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER inference_transfer_append_only BEFORE UPDATE OR DELETE ON inference_transfer
    FOR EACH ROW EXECUTE FUNCTION inference_transfer_refuse_change();
CREATE TRIGGER inference_transfer_no_truncate BEFORE TRUNCATE ON inference_transfer
    FOR EACH STATEMENT EXECUTE FUNCTION inference_transfer_refuse_change();

CREATE VIEW inference_posting AS
    SELECT id AS transfer_id, kind, at, 'organisation' AS account, organisation_id AS account_id, -amount AS amount
    FROM inference_transfer
    UNION ALL
    SELECT id, kind, at, 'deployment', deployment_id, amount FROM inference_transfer;
""" + "".join(
    f"CREATE TRIGGER {table}_moves_configuration AFTER INSERT OR UPDATE OR DELETE ON {table}"
    " FOR EACH STATEMENT EXECUTE FUNCTION inference_configuration_moved();\n"
    for table in TABLES
)
REVERSE = (
    "".join(f"DROP TRIGGER {table}_moves_configuration ON {table};\n" for table in TABLES)
    + """
DROP VIEW inference_posting;
DROP TRIGGER inference_transfer_no_truncate ON inference_transfer;
DROP TRIGGER inference_transfer_append_only ON inference_transfer;
DROP FUNCTION inference_transfer_refuse_change();
DROP FUNCTION inference_check_generation(bigint);
DELETE FROM inference_budgetstate;
"""
)


class Migration(migrations.Migration):
    dependencies = [("inference", "0005_budgets"), ("accounts", "0004_teams")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
